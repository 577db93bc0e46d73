// SPDX-License-Identifier: MIT
// A job whose ranks are threads with communicators of a fake NCCL, for tests.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "collectives/bootstrap/bootstrap.h"
#include "collectives/nccl/communicator.h"
#include "engine/base/error.h"
#include "test/collectives/nccl/fake_nccl.h"

namespace lockstep::collectives::nccl {

// Holds what the thread of a rank needs.
struct Rank {
  Communicator& communicator;
  Bootstrap& bootstrap;
  FakeNccl& fake;
  void* stream;
  int rank;
  int ranks;
  // Waits until the queued work of the rank is complete.
  void wait() const;
};

using Errors = std::vector<std::optional<engine::Error>>;  // one per rank

// Opens the communicators and runs `body` as each rank. `hosts`: one entry per rank. Expects that
// nothing is left afterwards, and that no call was a misuse of NCCL.
Errors run_job(FakeNccl& fake, const std::vector<int>& hosts, const Options& options,
               const std::function<void(const Rank&)>& body);

// Does the same, and expects that all ranks succeed.
void run_well(FakeNccl& fake, const std::vector<int>& hosts, const Options& options,
              const std::function<void(const Rank&)>& body);

}  // namespace lockstep::collectives::nccl
