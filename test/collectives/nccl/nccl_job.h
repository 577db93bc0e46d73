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

// What a rank's thread has.
struct Rank {
  Communicator& communicator;
  Bootstrap& bootstrap;
  FakeNccl& fake;
  void* stream;
  int rank;
  int ranks;
  // Until what the rank has queued is through.
  void wait() const;
};

using Errors = std::vector<std::optional<engine::Error>>;  // of each rank's thread

// Opens the communicators and runs `body` as each rank; `hosts`: of each. Expects that nothing is
// left afterwards, and that nothing was asked of NCCL that it forbids.
Errors run_job(FakeNccl& fake, const std::vector<int>& hosts, const Options& options,
               const std::function<void(const Rank&)>& body);

// The same where all must succeed.
void run_well(FakeNccl& fake, const std::vector<int>& hosts, const Options& options,
              const std::function<void(const Rank&)>& body);

}  // namespace lockstep::collectives::nccl
