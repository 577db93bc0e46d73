// SPDX-License-Identifier: MIT
// How fast steps are on a device whose kernels are queued, and what its memory and its products
// would allow. Whole steps are those of the training loop: a step ahead of the device, without a
// wait in between; they are timed in groups, whose ends the loop waits for anyway. The time of each
// layer is measured apart from that, with a wait around each; and both ceilings in the same run.
//
// Serves devices of either kind, so that the host can test it. One thread; the strategy is not open
// yet and outlives the call, as do its devices. Throws Error(kInvalid) where the loss did not fall
// or a ceiling's result is wrong, and what the training loop throws.
#pragma once
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "engine/device/device.h"
#include "engine/nn/graph_spec.h"
#include "engine/train/strategy.h"

namespace lockstep::bench {

struct DeviceStepOptions {
  std::size_t batch = 128;  // over all replicas
  int steps = 60, warm_up = 10;
  int group = 10;        // steps that are timed together
  int layer_steps = 10;  // with a wait around each layer; 0: no such part
  int ceiling_turns = 7;
  std::size_t product = 8192;                   // extent of the large product's matrices
  std::size_t copied = std::size_t(256) << 20;  // bytes
  engine::DType dtype = engine::DType::kFloat32;
};

// `devices`: of each replica, one entry each. {"batch", "replicas", "device", "dtype", "algorithm",
// "milliseconds", "images_per_second", "groups": [images/s], "group_steps", "losses": [first,
// last], "roofline": {"copy_gb_s", "product_tflop_s", "mb_per_image", "gflop_per_image",
// "milliseconds", "images_per_second", "share"}, "parts": {name: {"milliseconds",
// "bound_milliseconds", "mb", "gflop"}}}. Times of parts are of rank 0; null where not measured.
nlohmann::json device_step(engine::Strategy& strategy, std::span<engine::Device* const> devices,
                           const engine::GraphSpec& graph, const DeviceStepOptions& options);

// For people.
std::string describe(const nlohmann::json& measured);

}  // namespace lockstep::bench
