// SPDX-License-Identifier: MIT
#include "engine/nn/initial.h"

#include <cmath>
#include <numbers>

#include "engine/base/error.h"
#include "engine/base/random.h"

namespace lockstep::engine {
namespace {

// Element i takes number i % 4 of counter i / 4, so its value hangs on nothing but its index.
// Normal numbers are made in pairs (Box and Muller): elements i and i + 1, with i even, share one
// radius.
template <class T>
void draw(const Initial& initial, std::uint64_t key, T* out, std::size_t count) {
  const double limit = std::sqrt(6.0 / double(initial.fan_in + initial.fan_out));
  const double deviation = std::sqrt(2.0 / double(initial.fan_in));
  for (std::size_t first = 0; first < count; first += 4) {
    const auto bits = random_bits(key, 0, first / 4);
    double numbers[4];
    for (std::size_t i = 0; i < 4; ++i) numbers[i] = uniform(bits[i]);
    if (initial.kind == Initial::Kind::kGlorotUniform) {
      for (double& number : numbers) number = limit * (2 * number - 1);
    } else {
      for (std::size_t i = 0; i < 4; i += 2) {
        const double radius = deviation * std::sqrt(-2 * std::log(numbers[i]));
        const double angle = 2 * std::numbers::pi * numbers[i + 1];
        numbers[i] = radius * std::cos(angle);
        numbers[i + 1] = radius * std::sin(angle);
      }
    }
    for (std::size_t i = 0; i < 4 && first + i < count; ++i) out[first + i] = T(numbers[i]);
  }
}

template <class T>
void fill(const Initial& initial, std::uint64_t key, T* out, std::size_t count) {
  if (initial.kind == Initial::Kind::kConstant) {
    for (std::size_t i = 0; i < count; ++i) out[i] = T(initial.value);
  } else {
    draw(initial, key, out, count);
  }
}

}  // namespace

Initial constant(double value) {
  return {Initial::Kind::kConstant, value, 1, 1};
}

Initial glorot_uniform(std::size_t fan_in, std::size_t fan_out) {
  return {Initial::Kind::kGlorotUniform, 0, fan_in, fan_out};
}

Initial he_normal(std::size_t fan_in) {
  return {Initial::Kind::kHeNormal, 0, fan_in, 1};
}

void initialise(const Initial& initial, std::uint64_t seed, std::string_view name, Tensor tensor) {
  const std::uint64_t key = stream_key(seed, name);
  if (tensor.dtype == DType::kFloat32) {
    fill(initial, key, tensor.as<float>(), tensor.elements());
  } else {
    invariant(tensor.dtype == DType::kFloat64, "start values are float32 or float64");
    fill(initial, key, tensor.as<double>(), tensor.elements());
  }
}

}  // namespace lockstep::engine
