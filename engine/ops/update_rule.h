// SPDX-License-Identifier: MIT
// The optimizer as plain data, usable by kernels on any device and inside a reduction. engine/optim
// creates it. With g the mean gradient (clipped), w a weight, t the step from 0:
//   sgd     g += weight_decay w;  v = momentum v + g;  w -= rate (nesterov ? g + momentum v : v)
//   adam    g += weight_decay w;  m, v = moments;  w -= rate mhat / (sqrt(vhat) + epsilon)
//   adamw   as adam, but w -= rate weight_decay w instead of the first term
//   lars    v = momentum v + rate local (g + weight_decay w);  w -= v
// with mhat = m / (1 - beta1^(t+1)), vhat = v / (1 - beta2^(t+1)). Only weights decay, or all
// parameters (decay_all). For lars, with |.| the norm of a whole parameter, a weight has
//   local = trust |w| / (|g| + weight_decay |w| + epsilon), and 1 if |w| or |g| is 0;
// other parameters have local = 1. Sources: Sutskever et al. 2013; Kingma and Ba 2015; Loshchilov
// and Hutter 2019; You, Gitman and Ginsburg 2017, in the form of MLPerf's reference.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace lockstep::engine {

enum class UpdateKind : std::uint8_t { kSgd, kAdam, kAdamW, kLars };

// Names what must be known of all gradients before the first weight may change. A norm also tells
// whether all of them are finite.
enum class Needs : std::uint8_t { kNothing, kFiniteness, kGlobalNorm, kLayerNorms };

// Describes loss scaling (Micikevicius et al. 2018, section 3.2). Losses are multiplied by a scale,
// so that low-precision gradients neither vanish nor overflow, and updates divide gradients by it.
// A dynamic scale adapts while training: a step with gradients that are not finite changes no
// weight and halves it, and `growth_interval` steps without such a step double it.
struct LossScaling {
  static constexpr double kLeast = 0x1p-14, kMost = 0x1p64;  // range of a dynamic scale
  static constexpr std::int64_t kMostInARow = 50;            // consecutive skipped steps
  bool dynamic = false;
  double start = 1;  // the first step's scale; constant unless dynamic
  std::int64_t growth_interval = 2000;
  // Returns the usual setting for float16.
  static LossScaling dynamically() { return {.dynamic = true, .start = 65536}; }
  bool operator==(const LossScaling&) const = default;
};

struct UpdateRule {
  UpdateKind kind = UpdateKind::kSgd;
  bool nesterov = false;
  double momentum = 0;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;
  bool decay_all = false;  // biases and normalizations decay too
  double clip_norm = 0;    // largest norm of the mean gradient; 0: none
  double trust = 0.001;    // lars
  LossScaling scaling;

  static constexpr std::size_t kMaxSlots = 2;
  // Returns the values kept per weight: sgd 1 with momentum, else 0; adam and adamw 2; lars 1.
  std::size_t slots() const {
    if (kind == UpdateKind::kSgd) return momentum != 0 ? 1 : 0;
    return kind == UpdateKind::kLars ? 1 : 2;
  }
  const char* slot_name(std::size_t slot) const {
    if (kind == UpdateKind::kSgd) return "momentum";
    if (kind == UpdateKind::kLars) return "velocity";  // includes the learning rates
    return slot == 0 ? "first_moment" : "second_moment";
  }
  Needs needs() const {
    if (kind == UpdateKind::kLars) return Needs::kLayerNorms;
    if (clip_norm > 0) return Needs::kGlobalNorm;
    return scaling.dynamic ? Needs::kFiniteness : Needs::kNothing;
  }
  // Returns whether the squares of all gradients are summed without regard to parameters.
  bool needs_squares() const {
    return needs() == Needs::kFiniteness || needs() == Needs::kGlobalNorm;
  }
  // Returns lars' local rate of a weight with these sums of squares.
  double local_rate(double gradient_squares, double weight_squares) const {
    if (gradient_squares == 0 || weight_squares == 0) return 1;
    const double norm = std::sqrt(weight_squares);
    return trust * norm / (std::sqrt(gradient_squares) + weight_decay * norm + epsilon);
  }
  bool operator==(const UpdateRule&) const = default;
};

// Describes elements of an arena that the rule treats alike. A segment begins at the end of the
// previous one; the first begins at 0.
struct UpdateSegment {
  std::size_t end = std::numeric_limits<std::size_t>::max();
  bool decays = true;
  bool adapts = false;  // lars: one weight with its own local rate
  bool operator==(const UpdateSegment&) const = default;
};

}  // namespace lockstep::engine
