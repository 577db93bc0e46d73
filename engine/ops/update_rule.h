// SPDX-License-Identifier: MIT
// The optimizer as plain data: what a kernel can be given on any device, inside a reduction too.
// Made by engine/optim. With g the mean gradient (clipped), w a weight, t the step from 0:
//   sgd     g += weight_decay w;  v = momentum v + g;  w -= rate (nesterov ? g + momentum v : v)
//   adam    g += weight_decay w;  m, v = moments;  w -= rate mhat / (sqrt(vhat) + epsilon)
//   adamw   as adam, but w -= rate weight_decay w instead of the first term
// with mhat = m / (1 - beta1^(t+1)), vhat = v / (1 - beta2^(t+1)). Sources: Sutskever et al. 2013;
// Kingma and Ba 2015; Loshchilov and Hutter 2019.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lockstep::engine {

enum class UpdateKind : std::uint8_t { kSgd, kAdam, kAdamW };

// What must be known of all gradients before the first weight may change.
enum class Needs : std::uint8_t { kNothing, kGlobalNorm };

struct UpdateRule {
  UpdateKind kind = UpdateKind::kSgd;
  bool nesterov = false;
  double momentum = 0;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;
  double clip_norm = 0;  // 0: no clipping; else the largest global norm of the mean gradient

  static constexpr std::size_t kMaxSlots = 2;
  // Values kept per weight: sgd with momentum 1, without 0; adam and adamw 2.
  std::size_t slots() const {
    if (kind == UpdateKind::kSgd) return momentum != 0 ? 1 : 0;
    return 2;
  }
  const char* slot_name(std::size_t slot) const {
    if (kind == UpdateKind::kSgd) return "momentum";
    return slot == 0 ? "first_moment" : "second_moment";
  }
  Needs needs() const { return clip_norm > 0 ? Needs::kGlobalNorm : Needs::kNothing; }
  bool operator==(const UpdateRule&) const = default;
};

}  // namespace lockstep::engine
