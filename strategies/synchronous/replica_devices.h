// SPDX-License-Identifier: MIT
// Limits of replicas on devices with memory of their own.
#pragma once
#include "engine/ops/ops.h"
#include "strategies/synchronous/synchronous_options.h"

namespace lockstep::strategies {

// Throws Error(kInvalid) for options that the devices of this process's replicas cannot obey, and
// for devices that do not reach each other's memory; else they do from here on. `ops`: of the first
// replica.
void require_possible_devices(const SynchronousOptions& options, const engine::Ops& ops);

}  // namespace lockstep::strategies
