// SPDX-License-Identifier: MIT
// Collects the timelines of all replicas of a job into one Chrome trace (engine/report/trace.h).
#pragma once
#include <string>

#include "engine/report/profile.h"
#include "engine/train/strategy.h"

namespace lockstep::engine {

// The trace of all replicas of the job, on the chief; empty elsewhere. Collective, outside of
// `run`. Processes of one host have one clock. Clocks of other hosts are moved to rank 0's: all
// look at theirs after each of nine meetings, and the median of the differences is the shift. It is
// as exact as a meeting is short.
std::string chrome_trace(Strategy& strategy, const Profile& profile);

}  // namespace lockstep::engine
