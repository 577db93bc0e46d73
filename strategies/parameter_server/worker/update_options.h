// SPDX-License-Identifier: MIT
// Options of how workers' gradients become updates on the servers. Flags and programs set them.
#pragma once
#include <cstdint>

namespace lockstep::strategies {

struct UpdateOptions {
  bool synchronous = false;
  // Synchronous: number of gradients per update; 0: one from each worker.
  int aggregate = 0;
  bool scale_rate = true;  // asynchronous: rate / (1 + staleness)
  // Asynchronous: gradients with more staleness are dropped; 0: no limit.
  std::uint64_t most_staleness = 0;
  // Asynchronous: worker 0 alone makes this many first steps.
  std::int64_t warm_up = 100;
  bool bfloat16 = false;  // on the wire
  // Asynchronous: replies to gradients bring the weights of the worker's next step. Weights of late
  // layers arrive while backward continues; pushes of other workers meanwhile count as staleness.
  // False: only replies to gradients that are sent after backward bring weights. The others are
  // requested when all gradients are answered. Both include the worker's own update.
  bool prefetch = false;
  // For embedding tables, workers keep and exchange only the rows that a batch touches. Only these
  // rows are updated, and the optimizer's state of a row changes only when it is touched. (Plain
  // sgd has no state, so it has the same bits as with whole tables.) False: tables travel whole,
  // like other parameters. Micro-batches need this, since each touches other rows.
  bool touched_rows = true;
  bool operator==(const UpdateOptions&) const = default;
};

}  // namespace lockstep::strategies
