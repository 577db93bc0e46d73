// SPDX-License-Identifier: MIT
// Limits of replicas on devices with memory of their own.
#pragma once
#include "engine/ops/ops.h"
#include "strategies/synchronous/synchronous_options.h"

namespace lockstep::strategies {

// Makes the replicas' devices reach each other's memory. Throws Error(kInvalid) if that is
// impossible, or if the devices do not support an option. `ops`: the first replica's.
void require_possible_devices(const SynchronousOptions& options, const engine::Ops& ops);

}  // namespace lockstep::strategies
