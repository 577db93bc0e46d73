// SPDX-License-Identifier: MIT
// The optimizer as plain data: what a kernel can be given on any device, inside a reduction too.
// Made by engine/optim. With g the mean gradient (clipped), w a weight, t the step from 0:
//   sgd     g += weight_decay w;  v = momentum v + g;  w -= rate (nesterov ? g + momentum v : v)
//   adam    g += weight_decay w;  m, v = moments;  w -= rate mhat / (sqrt(vhat) + epsilon)
//   adamw   as adam, but w -= rate weight_decay w instead of the first term
//   lars    v = momentum v + rate local (g + weight_decay w);  w -= v
// with mhat = m / (1 - beta1^(t+1)), vhat = v / (1 - beta2^(t+1)). Weights alone decay, or all
// parameters (decay_all). Of lars, |.| being the norm of a whole parameter, a weight has
//   local = trust |w| / (|g| + weight_decay |w| + epsilon), and 1 where |w| or |g| is 0;
// of other parameters local is 1. Sources: Sutskever et al. 2013; Kingma and Ba 2015; Loshchilov
// and Hutter 2019; You, Gitman and Ginsburg 2017, as MLPerf's reference has it.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace lockstep::engine {

enum class UpdateKind : std::uint8_t { kSgd, kAdam, kAdamW, kLars };

// What must be known of all gradients before the first weight may change. A norm tells whether all
// are finite, too.
enum class Needs : std::uint8_t { kNothing, kFiniteness, kGlobalNorm, kLayerNorms };

// Losses are multiplied by a scale, so that gradients of low precision neither vanish nor become
// infinite, and updates divide gradients by it. A dynamic one is found while training: a step whose
// gradients are not all finite changes no weight and halves it, and `growth_interval` steps without
// such a one double it. Source: Micikevicius et al. 2018, section 3.2.
struct LossScaling {
  static constexpr double kLeast = 0x1p-14, kMost = 0x1p64;  // that a dynamic one may be
  static constexpr std::int64_t kMostInARow = 50;            // steps that change nothing
  bool dynamic = false;
  double start = 1;  // of the first step; of all, where it is not dynamic
  std::int64_t growth_interval = 2000;
  // As it mostly does for float16.
  static LossScaling dynamically() { return {.dynamic = true, .start = 65536}; }
  bool operator==(const LossScaling&) const = default;
};

struct UpdateRule {
  UpdateKind kind = UpdateKind::kSgd;
  bool nesterov = false;
  double momentum = 0;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;
  bool decay_all = false;  // of biases and normalisations too, not of weights alone
  double clip_norm = 0;    // 0: no clipping; else the largest global norm of the mean gradient
  double trust = 0.001;    // lars
  LossScaling scaling;

  static constexpr std::size_t kMaxSlots = 2;
  // Values kept per weight: sgd with momentum 1, without 0; adam and adamw 2; lars 1.
  std::size_t slots() const {
    if (kind == UpdateKind::kSgd) return momentum != 0 ? 1 : 0;
    return kind == UpdateKind::kLars ? 1 : 2;
  }
  const char* slot_name(std::size_t slot) const {
    if (kind == UpdateKind::kSgd) return "momentum";
    if (kind == UpdateKind::kLars) return "velocity";  // the rates are in it
    return slot == 0 ? "first_moment" : "second_moment";
  }
  Needs needs() const {
    if (kind == UpdateKind::kLars) return Needs::kLayerNorms;
    if (clip_norm > 0) return Needs::kGlobalNorm;
    return scaling.dynamic ? Needs::kFiniteness : Needs::kNothing;
  }
  // Whether the squares of all gradients are taken, whatever parameter they are of.
  bool needs_squares() const {
    return needs() == Needs::kFiniteness || needs() == Needs::kGlobalNorm;
  }
  // Of lars, of a weight with these sums of squares.
  double local_rate(double gradient_squares, double weight_squares) const {
    if (gradient_squares == 0 || weight_squares == 0) return 1;
    const double norm = std::sqrt(weight_squares);
    return trust * norm / (std::sqrt(gradient_squares) + weight_decay * norm + epsilon);
  }
  bool operator==(const UpdateRule&) const = default;
};

// Elements of an arena that the rule treats alike: those from the end of the segment before on, the
// first from 0.
struct UpdateSegment {
  std::size_t end = std::numeric_limits<std::size_t>::max();
  bool decays = true;
  bool adapts = false;  // lars: they are one weight, with a local rate of its own
  bool operator==(const UpdateSegment&) const = default;
};

}  // namespace lockstep::engine
