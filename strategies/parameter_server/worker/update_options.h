// SPDX-License-Identifier: MIT
// How workers' gradients become updates on the servers: what flags and programs say of it, and the
// strategy obeys.
#pragma once
#include <cstdint>

namespace lockstep::strategies {

struct UpdateOptions {
  bool synchronous = false;
  int aggregate = 0;                 // synchronous: so many gradients make an update; 0: all
  bool scale_rate = true;            // asynchronous: rate / (1 + staleness)
  std::uint64_t most_staleness = 0;  // asynchronous: staler gradients are dropped; 0: none are
  std::int64_t warm_up = 100;        // asynchronous: the first so many steps are worker 0's alone
  bool bfloat16 = false;             // on the wire
  // Asynchronous: the weights of a worker's next step come with the answers to its gradients. Those
  // of late layers come while its backward goes on; what others push meanwhile counts as staleness.
  // False: only with the answers to those that leave when backward has ended; the rest is asked for
  // when all gradients were answered. Either way they have the worker's own update.
  bool prefetch = false;
  // Of embeddings' tables the rows that a batch touches travel, are kept by workers and updated,
  // and no others; the optimizer's state of a row moves when the row is touched. False: tables
  // travel whole, as all other parameters do.
  bool touched_rows = true;
  bool operator==(const UpdateOptions&) const = default;
};

}  // namespace lockstep::strategies
