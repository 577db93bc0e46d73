// SPDX-License-Identifier: MIT
// Implements lockstep bench --device and --devices: the table of all-reduces among replicas of this
// process on devices. bench/device_ranks.h describes the measurement.
#pragma once
#include "strategies/session/session.h"
#include "tools/bench/turns.h"
#include "tools/bench_flags.h"

namespace lockstep::tools {

// Returns whether every result was right. Throws Error(kInvalid) if a device does not exist.
bool bench_devices(const BenchFlags& f, const bench::Setting& setting,
                   strategies::Session& session);

}  // namespace lockstep::tools
