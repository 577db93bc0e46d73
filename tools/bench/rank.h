// SPDX-License-Identifier: MIT
// One rank of a benchmark: its job, which has one rank a process, and what adds. Plain references;
// both outlive it.
#pragma once
#include "collectives/job/job.h"
#include "engine/ops/ops.h"

namespace lockstep::tools::bench {

struct Rank {
  collectives::Job& job;
  const engine::Ops& ops;
};

}  // namespace lockstep::tools::bench
