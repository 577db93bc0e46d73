// SPDX-License-Identifier: MIT
// Measures updates on a device, alone and with the sums of a step, against the rate of a copy in
// the same run (`lockstep bench --device` measures sums alone). All that is compared takes turns
// with the copy. Each function measures one table, of one element type, checks what was computed,
// and returns a JSON object; times are medians over the turns, each of a batch of calls between two
// waits for the device.
//
// One thread. The device outlives the call. Throw Error(kMemory) where the device is too small,
// Error(kInvalid) for options that cannot be and for a result that is wrong.
#pragma once
#include <nlohmann/json.hpp>

#include "engine/device/device.h"
#include "engine/tensor/tensor.h"

namespace lockstep::bench {

struct DeviceOptions {
  engine::DType dtype = engine::DType::kFloat32;
  std::size_t parameters = 25'600'000;          // of optimizer and updates
  int update_replicas = 4;                      // of the updates
  std::size_t copied = std::size_t(256) << 20;  // bytes of the copy
  int turns = 7;
  double batch_seconds = 0.02;  // that a batch of calls takes, about
};

// {"bench": "optimizer", "parameters", "bytes_per_parameter", "copy_gb_s", "calls", "microseconds",
// "gb_s", "share_of_copy"}: SGD with momentum, one replica.
nlohmann::json optimizer_figures(engine::Device& device, const DeviceOptions& options);
// {"bench": "update", "replicas", "parameters", "ways": {name: {"buckets", "calls",
// "microseconds"}}, "fused_over_separate"}: sums and updates, fused and separate, each in buckets
// as steps have them and in one; the last number is the faster time of the two separate ways over
// that of the two ways fused. Mirrors must be equal, and in float32 all ways have the same bits.
nlohmann::json update_figures(engine::Device& device, const DeviceOptions& options);

}  // namespace lockstep::bench
