// SPDX-License-Identifier: MIT
// Holds one rank of a benchmark: its job, which has one rank per process, and the ops that reduce.
// Plain references; both outlive it.
#pragma once
#include "collectives/job/job.h"
#include "engine/ops/ops.h"

namespace lockstep::tools::bench {

struct Rank {
  collectives::Job& job;
  const engine::Ops& ops;
};

}  // namespace lockstep::tools::bench
