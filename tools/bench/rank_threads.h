// SPDX-License-Identifier: MIT
// Ranks that are threads of this process while a benchmark runs.
#pragma once
#include <chrono>
#include <functional>
#include <vector>

#include "strategies/session/session.h"
#include "tools/bench/rank.h"

namespace lockstep::tools::bench {

// Runs `body` on one thread per entry of `host`, all at once. The entry is the host of the rank.
// Throws the first exception.
void on_threads(const std::vector<int>& host, strategies::Session& session,
                std::chrono::milliseconds deadline, const std::function<void(const Rank&)>& body);

}  // namespace lockstep::tools::bench
