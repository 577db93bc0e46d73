// SPDX-License-Identifier: MIT
// Measures training steps on a device with queued kernels, and the bounds that its memory and its
// products set. Whole steps are those of the training loop: the host is a step ahead of the device,
// without a wait in between. They are timed in groups, because the loop waits at the end of a group
// anyway. The times of layers come from separate steps with a wait around each layer. Both ceilings
// are measured in the same run.
//
// Serves devices of either kind, so that the host can test it. One thread. The strategy is not open
// yet; it and its devices outlive the call. Throws Error(kInvalid) if the loss did not fall or a
// ceiling's result is wrong, and the errors of the training loop.
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
  int group = 10;  // steps timed together
  // Steps with a wait around each layer; 0: none.
  int layer_steps = 10;
  int ceiling_turns = 7;
  std::size_t product = 8192;                   // extent of the large product's matrices
  std::size_t copied = std::size_t(256) << 20;  // bytes
  engine::DType dtype = engine::DType::kFloat32;
};

// Measures the steps. `devices`: one entry per replica. Returns {"batch", "replicas", "device",
// "dtype", "algorithm", "milliseconds", "examples_per_second", "groups": [images/s], "group_steps",
// "losses": [first, last], "roofline": {"copy_gb_s", "product_tflop_s", "mb_per_image",
// "gflop_per_image", "milliseconds", "examples_per_second", "share"}, "parts": {name:
// {"milliseconds", "bound_milliseconds", "mb", "gflop"}}}. Times of parts are those of rank 0, or
// null if not measured.
nlohmann::json device_step(engine::Strategy& strategy, std::span<engine::Device* const> devices,
                           const engine::GraphSpec& graph, const DeviceStepOptions& options);

// Returns the result as text for people.
std::string describe(const nlohmann::json& measured);

}  // namespace lockstep::bench
