// SPDX-License-Identifier: MIT
// Choices of a user about the steps of synchronous training: one value from the flags to the plan
// and the manifest. lockstep makes and explains the choices that are left open. Plain values.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "collectives/cost/algorithm_rules.h"
#include "engine/device/device.h"
#include "engine/ops/update_rule.h"

namespace lockstep::strategies {

// Selects where the optimizer's update runs: fused into the sums of gradients, or after them. With
// the same algorithm both have the same bits on one host, except for 16-bit weights: a separate
// update first rounds sums to 16 bits, and a fused one only if it clips or its loss scale is
// dynamic.
enum class Update : std::uint8_t { kAutomatic, kFused, kSeparate };
// Selects how GPUs of several processes of a host exchange: kernels access all GPUs' memory (kIpc),
// or data pass through host memory. Automatic: kIpc if it is possible and NCCL does not make the
// sums.
enum class GpuExchange : std::uint8_t { kAutomatic, kIpc, kHost };
// Selects whether steps run as captured graphs, with the same bits. Only steps whose host is one
// ahead (FitOptions::steps_ahead) and without a profile are captured. kOn throws if that is
// impossible.
enum class Graphs : std::uint8_t { kAutomatic, kOn, kOff };

// Return "auto", "fused", "separate"; "auto", "ipc", "host"; "auto", "on", "off".
std::string_view name(Update update);
std::string_view name(GpuExchange exchange);
std::string_view name(Graphs graphs);
// Return the choice of this name. Throw Error(kInvalid) that lists all names.
Update update_of(std::string_view text);
GpuExchange gpu_exchange_of(std::string_view text);
Graphs graphs_of(std::string_view text);

struct StepChoices {
  // Default: the first device's type. 16-bit types keep float32 masters of the weights, but not of
  // frozen parameters.
  std::optional<engine::DType> dtype = {};
  std::optional<engine::Kernels> kernels = {};  // default: a checkpoint's, or the fastest
  // Factor of losses while gradients are computed: {.start = 512}, or LossScaling::dynamically().
  // Default: dynamic for float16, none for other types.
  std::optional<engine::LossScaling> loss_scale = {};
  // A name of collectives/algorithms/registry.h, or names by the bytes of a bucket:
  // "direct:..64k,ring:64k..". Other sizes are chosen automatically.
  collectives::AlgorithmRules algorithm = {};
  Update update = Update::kAutomatic;
  std::size_t bucket_bytes = 0;  // 0: automatic
  // Type of gradients between hosts: kFloat32 or kBFloat16, for float32 graphs only. Default: a
  // checkpoint's, or the gradients' own type. Fused updates send weights in their own type.
  std::optional<engine::DType> wire = {};
  GpuExchange gpu_exchange = GpuExchange::kAutomatic;
  Graphs graphs = Graphs::kAutomatic;
  bool overlap = true;  // communicate during backward; the same bits
  // Recomputes blocks of the model in backward, to save memory; the same bits.
  bool recompute = false;
};

}  // namespace lockstep::strategies
