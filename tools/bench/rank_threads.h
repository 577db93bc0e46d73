// SPDX-License-Identifier: MIT
// Ranks that are threads of this process, for as long as a benchmark runs.
#pragma once
#include <chrono>
#include <functional>
#include <vector>

#include "strategies/session/session.h"
#include "tools/bench/rank.h"

namespace lockstep::tools::bench {

// Runs `body` on a thread for each entry of `host`, which says what host the rank is to be on, all
// at once; throws the first exception.
void on_threads(const std::vector<int>& host, strategies::Session& session,
                std::chrono::milliseconds deadline, const std::function<void(const Rank&)>& body);

}  // namespace lockstep::tools::bench
