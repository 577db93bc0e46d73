// SPDX-License-Identifier: MIT
// Measures updates on a device, alone and with the sums of a step, against the rate of a copy in
// the same run. `lockstep bench --device` measures sums alone. All measurements are interleaved
// with the copy. Each function measures one table of one dtype, checks the results, and returns a
// JSON object. Times are medians over rounds; a round is a batch of calls between two waits for the
// device.
//
// One thread. The device outlives the call. Throws Error(kMemory) if the device is too small, and
// Error(kInvalid) for impossible options and for a wrong result.
#pragma once
#include <nlohmann/json.hpp>

#include "engine/device/device.h"
#include "engine/tensor/tensor.h"

namespace lockstep::bench {

struct DeviceOptions {
  engine::DType dtype = engine::DType::kFloat32;
  std::size_t parameters = 25'600'000;          // for optimizer and updates
  int update_replicas = 4;                      // for the updates
  std::size_t copied = std::size_t(256) << 20;  // bytes of the copy
  int turns = 7;
  double batch_seconds = 0.02;  // approximate time of a batch
};

// Measures SGD with momentum on one replica. Returns {"bench": "optimizer", "parameters",
// "bytes_per_parameter", "copy_gb_s", "calls", "microseconds", "gb_s", "share_of_copy"}.
nlohmann::json optimizer_figures(engine::Device& device, const DeviceOptions& options);
// Measures sums and updates, fused and separate, each in the buckets of training steps and in one
// bucket. Returns {"bench": "update", "replicas", "parameters", "ways": {name: {"buckets", "calls",
// "microseconds"}}, "fused_over_separate"}. The last number is the faster time of the two separate
// variants over that of the two fused variants. Mirrors must be equal, and in float32 all variants
// have the same bits.
nlohmann::json update_figures(engine::Device& device, const DeviceOptions& options);

}  // namespace lockstep::bench
