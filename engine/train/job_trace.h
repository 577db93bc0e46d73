// SPDX-License-Identifier: MIT
// Collects the timelines of all replicas of a job into one Chrome trace (engine/report/trace.h).
#pragma once
#include <string>

#include "engine/report/profile.h"
#include "engine/train/strategy.h"

namespace lockstep::engine {

// Returns the trace of all replicas of the job on the chief; empty elsewhere. Collective, outside
// of `run`. Processes of one host share a clock. The clocks of other hosts are aligned with rank
// 0's: all ranks read their clocks after each of nine barriers, and the median difference is the
// shift. Its error is at most about the duration of a barrier.
std::string chrome_trace(Strategy& strategy, const Profile& profile);

}  // namespace lockstep::engine
