// SPDX-License-Identifier: MIT
// What a user may choose about the steps of synchronous training: one value from the flags to the
// plan and the manifest. What is not chosen here, lockstep chooses and explains. Plain values.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "collectives/cost/algorithm_rules.h"
#include "engine/device/device.h"
#include "engine/ops/update_rule.h"

namespace lockstep::strategies {

// Where the optimizer's update happens: inside the sums of gradients, or behind them.
enum class Update : std::uint8_t { kAutomatic, kFused, kSeparate };
// How GPUs of several processes of a host exchange: kernels reach the memory of all of them, or
// through memory of the host. Automatic: kIpc where that can be and NCCL does not add.
enum class GpuExchange : std::uint8_t { kAutomatic, kIpc, kHost };
// Steps as graphs that the device repeats; the same bits. Only steps whose host is one ahead
// (FitOptions::steps_ahead), without a profile; kOn is refused where that cannot be.
enum class Graphs : std::uint8_t { kAutomatic, kOn, kOff };

// "auto", "fused", "separate"; "auto", "ipc", "host"; "auto", "on", "off".
std::string_view name(Update update);
std::string_view name(GpuExchange exchange);
std::string_view name(Graphs graphs);
// The choice of this name. Throw Error(kInvalid) that lists all names.
Update update_of(std::string_view text);
GpuExchange gpu_exchange_of(std::string_view text);
Graphs graphs_of(std::string_view text);

struct StepChoices {
  std::optional<engine::DType> dtype = {};      // else what the first device prefers
  std::optional<engine::Kernels> kernels = {};  // else a checkpoint's, or the fastest
  // What losses are multiplied by while gradients are computed: {.start = 512}, or
  // LossScaling::dynamically(); else dynamic for float16, and none for other types.
  std::optional<engine::LossScaling> loss_scale = {};
  // A name of collectives/algorithms/registry.h, or names by the bytes of a bucket:
  // "direct:..64k,ring:64k..". What is not named is chosen.
  collectives::AlgorithmRules algorithm = {};
  Update update = Update::kAutomatic;
  std::size_t bucket_bytes = 0;  // 0: chosen
  // Of gradients between hosts: kFloat32 or kBFloat16, of float32 graphs alone; else a
  // checkpoint's, or as they are.
  std::optional<engine::DType> wire = {};
  GpuExchange gpu_exchange = GpuExchange::kAutomatic;
  Graphs graphs = Graphs::kAutomatic;
  bool overlap = true;     // communicate while backward runs; the same bits without
  bool recompute = false;  // blocks of the model in backward, to save memory; the same bits
};

}  // namespace lockstep::strategies
