// SPDX-License-Identifier: MIT
// The start value of a parameter: drawn from (seed, the parameter's full name) by element, so it is
// the same for every replica, every strategy and every number of replicas.
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
// Returns the uniform distribution in +-sqrt(6 / (fan_in + fan_out)); Glorot and Bengio 2010.
Initial glorot_uniform(std::size_t fan_in, std::size_t fan_out);
// Returns the normal distribution with variance 2 / fan_in; He et al. 2015.
Initial he_normal(std::size_t fan_in);

// Writes a floating-point tensor on the host element by element: elements first, first + 1, ... of
// the parameter. So a part, such as some rows of a table, costs only that part. Values of the
// 16-bit types are those of float32, rounded. About 10 ns per element.
void initialise(const Initial& initial, std::uint64_t seed, std::string_view name, Tensor tensor,
                std::size_t first = 0);

}  // namespace lockstep::engine
