// SPDX-License-Identifier: MIT
// lockstep bench --device, --devices: the table of all-reduces among replicas of this process on
// devices. What is measured and how: bench/device_ranks.h.
#pragma once
#include "strategies/session/session.h"
#include "tools/bench/turns.h"
#include "tools/bench_flags.h"

namespace lockstep::tools {

// Returns whether every result was right. Throws Error(kInvalid) for devices that are not there.
bool bench_devices(const BenchFlags& f, const bench::Setting& setting,
                   strategies::Session& session);

}  // namespace lockstep::tools
