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
  enum class Kind : std::uint8_t { kConstant, kUniform, kGlorotUniform, kHeNormal };
  Kind kind = Kind::kConstant;
  double value = 0;  // kConstant, or the limit of kUniform
  std::size_t fan_in = 1, fan_out = 1;
};
Initial constant(double value);
Initial uniform_within(double limit);  // uniform in +-limit
// Uniform in +-sqrt(6 / (fan_in + fan_out)); Glorot and Bengio 2010.
Initial glorot_uniform(std::size_t fan_in, std::size_t fan_out);
// Normal with variance 2 / fan_in; He et al. 2015.
Initial he_normal(std::size_t fan_in);

// Writes tensor (float32, float64 or bfloat16, on the host) element by element: elements first,
// first + 1, ... of the parameter, so that a part of one, such as some rows of a table, costs what
// that part costs. In bfloat16 they are those of float32, rounded. About 10 ns an element.
void initialise(const Initial& initial, std::uint64_t seed, std::string_view name, Tensor tensor,
                std::size_t first = 0);

}  // namespace lockstep::engine
