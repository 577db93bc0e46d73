// SPDX-License-Identifier: MIT
// The device "reference:0": plain loops, sums in double precision, for float64, float32 and
// bfloat16. It is the oracle of the tests and far too slow for anything else. No state;
// thread-safe.
#pragma once
#include <memory>

#include "engine/device/device.h"
#include "engine/ops/ops.h"
#include "engine/tensor/tensor.h"

namespace lockstep::engine {

std::unique_ptr<Device> reference_device();

// Returns kernels without a device. Throws Error(kInvalid) for other types.
std::unique_ptr<Ops> reference_ops(DType dtype);

}  // namespace lockstep::engine
