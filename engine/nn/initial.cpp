// SPDX-License-Identifier: MIT
#include "engine/nn/initial.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/base/error.h"
#include "engine/base/random.h"

namespace lockstep::engine {
namespace {

// Converts `value`; numbers of the 16-bit types are rounded from float32.
template <class T>
T element_of(double value) {
  if constexpr (sizeof(T) == 2) {
    return T(float(value));
  } else {
    return T(value);
  }
}

// Element i takes number i % 4 of counter i / 4, so its value depends only on its index. Normal
// numbers come in pairs (Box and Muller): elements i and i + 1, with i even, share one radius.
template <class T>
void draw(const Initial& initial, std::uint64_t key, T* out, std::size_t begin, std::size_t count) {
  const double limit = initial.kind == Initial::Kind::kUniform
                           ? initial.value
                           : std::sqrt(6.0 / double(initial.fan_in + initial.fan_out));
  const double deviation = std::sqrt(2.0 / double(initial.fan_in));
  const std::size_t end = begin + count;
  for (std::size_t first = begin / 4 * 4; first < end; first += 4) {
    const auto bits = random_bits(key, 0, first / 4);
    double numbers[4];
    for (std::size_t i = 0; i < 4; ++i) numbers[i] = uniform(bits[i]);
    if (initial.kind != Initial::Kind::kHeNormal) {
      for (double& number : numbers) number = limit * (2 * number - 1);
    } else {
      for (std::size_t i = 0; i < 4; i += 2) {
        const double radius = deviation * std::sqrt(-2 * std::log(numbers[i]));
        const double angle = 2 * std::numbers::pi * numbers[i + 1];
        numbers[i] = radius * std::cos(angle);
        numbers[i + 1] = radius * std::sin(angle);
      }
    }
    for (std::size_t i = std::max(first, begin); i < std::min(first + 4, end); ++i) {
      out[i - begin] = element_of<T>(numbers[i - first]);
    }
  }
}

template <class T>
void fill(const Initial& initial, std::uint64_t key, T* out, std::size_t begin, std::size_t count) {
  if (initial.kind == Initial::Kind::kConstant) {
    for (std::size_t i = 0; i < count; ++i) out[i] = element_of<T>(initial.value);
  } else {
    draw(initial, key, out, begin, count);
  }
}

}  // namespace

Initial constant(double value) {
  return {Initial::Kind::kConstant, value, 1, 1};
}

Initial uniform_within(double limit) {
  return {Initial::Kind::kUniform, limit, 1, 1};
}

Initial glorot_uniform(std::size_t fan_in, std::size_t fan_out) {
  return {Initial::Kind::kGlorotUniform, 0, fan_in, fan_out};
}

Initial he_normal(std::size_t fan_in) {
  return {Initial::Kind::kHeNormal, 0, fan_in, 1};
}

void initialise(const Initial& initial, std::uint64_t seed, std::string_view name, Tensor tensor,
                std::size_t first) {
  const std::uint64_t key = stream_key(seed, name);
  if (tensor.dtype == DType::kFloat32) {
    fill(initial, key, tensor.as<float>(), first, tensor.elements());
  } else if (tensor.dtype == DType::kBFloat16) {
    fill(initial, key, tensor.as<BFloat16>(), first, tensor.elements());
  } else if (tensor.dtype == DType::kFloat16) {
    fill(initial, key, tensor.as<Half>(), first, tensor.elements());
  } else {
    invariant(tensor.dtype == DType::kFloat64, "start values are floating point");
    fill(initial, key, tensor.as<double>(), first, tensor.elements());
  }
}

}  // namespace lockstep::engine
