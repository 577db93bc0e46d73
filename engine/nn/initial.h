// SPDX-License-Identifier: MIT
// How a parameter starts: drawn from (seed, parameter's full name) by element, so the same for
// every replica, every strategy and every number of replicas.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/tensor/tensor.h"

namespace lockstep::engine {

struct Initial {
  enum class Kind : std::uint8_t { kConstant, kGlorotUniform, kHeNormal };
  Kind kind = Kind::kConstant;
  double value = 0;  // kConstant
  std::size_t fan_in = 1, fan_out = 1;
};
Initial constant(double value);
// Uniform in +-sqrt(6 / (fan_in + fan_out)); Glorot and Bengio 2010.
Initial glorot_uniform(std::size_t fan_in, std::size_t fan_out);
// Normal with variance 2 / fan_in; He et al. 2015.
Initial he_normal(std::size_t fan_in);

// Writes tensor (float32 or float64, on the host) element by element. About 10 ns an element.
void initialise(const Initial& initial, std::uint64_t seed, std::string_view name, Tensor tensor);

}  // namespace lockstep::engine
