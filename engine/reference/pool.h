// SPDX-License-Identifier: MIT
// Reference: pools. The workspace of a max pool holds the index of the winning input (in its row)
// for each output; an average pool needs none.
#pragma once
#include <cmath>
#include <vector>

#include "engine/ops/checks.h"
#include "engine/reference/reference_ops.h"

namespace lockstep::engine {

// Calls visit(output, input), indices of elements in a row, for each position inside the image of
// each window. Windows and positions are visited row by row.
template <class Visit>
void each_place(const PoolSpec& s, Visit visit) {
  for (std::size_t oy = 0; oy < s.output_height(); ++oy) {
    for (std::size_t ox = 0; ox < s.output_width(); ++ox) {
      for (std::size_t ky = 0; ky < s.kernel_height; ++ky) {
        const std::size_t iy = oy * s.stride + ky - s.padding;  // wraps above the image
        if (iy >= s.height) continue;
        for (std::size_t kx = 0; kx < s.kernel_width; ++kx) {
          const std::size_t ix = ox * s.stride + kx - s.padding;
          if (ix >= s.width) continue;
          for (std::size_t c = 0; c < s.channels; ++c) {
            visit((oy * s.output_width() + ox) * s.channels + c,
                  (iy * s.width + ix) * s.channels + c);
          }
        }
      }
    }
  }
}

template <class T>
std::size_t ReferenceOps<T>::pool_workspace(const PoolSpec& spec, std::size_t rows) {
  if (spec.kind == PoolKind::kAverage) return 0;
  return rows * spec.output_height() * spec.output_width() * spec.channels * sizeof(std::uint64_t);
}

template <class T>
void ReferenceOps<T>::pool_forward(const StepState* state, const PoolSpec& spec, Tensor x, Tensor y,
                                   std::byte* workspace) {
  check_spec(spec);
  const std::size_t rows = rows_in_use(state, {x, y});
  const std::size_t inputs = spec.height * spec.width * spec.channels;
  const std::size_t outputs = spec.output_height() * spec.output_width() * spec.channels;
  check_batch(x, kType, inputs, "pool: x");
  check_batch(y, kType, outputs, "pool: y");
  auto* winners = reinterpret_cast<std::uint64_t*>(workspace);
  for (std::size_t r = 0; r < rows; ++r) {
    const T* from = x.as<T>() + r * inputs;
    T* to = y.as<T>() + r * outputs;
    std::vector<double> sums(outputs);
    std::vector<std::size_t> places(outputs);
    each_place(spec, [&](std::size_t output, std::size_t input) {
      const T value = from[input];
      const bool first = places[output]++ == 0;
      sums[output] += double(value);
      if (spec.kind == PoolKind::kAverage) return;
      // NaN wins over all numbers, so that it stays visible.
      const bool wins = value > to[output] || (std::isnan(value) && !std::isnan(to[output]));
      if (first || wins) {
        to[output] = value;
        winners[r * outputs + output] = input;
      }
    });
    for (std::size_t o = 0; spec.kind == PoolKind::kAverage && o < outputs; ++o) {
      to[o] = T(sums[o] / double(places[o]));
    }
  }
}

template <class T>
void ReferenceOps<T>::pool_backward(const StepState* state, const PoolSpec& spec, Tensor dy,
                                    Tensor dx, const std::byte* workspace) {
  check_spec(spec);
  if (!dx) return;
  const std::size_t rows = rows_in_use(state, {dy, dx});
  const std::size_t inputs = spec.height * spec.width * spec.channels;
  const std::size_t outputs = spec.output_height() * spec.output_width() * spec.channels;
  check_batch(dx, kType, inputs, "pool: dx");
  check_batch(dy, kType, outputs, "pool: dy");
  const auto* winners = reinterpret_cast<const std::uint64_t*>(workspace);
  std::vector<std::size_t> places(outputs);
  each_place(spec, [&](std::size_t output, std::size_t) { ++places[output]; });
  for (std::size_t r = 0; r < rows; ++r) {
    std::vector<double> sums(inputs);
    each_place(spec, [&](std::size_t output, std::size_t input) {
      const double g = double(dy.as<T>()[r * outputs + output]);
      if (spec.kind == PoolKind::kAverage) {
        sums[input] += g / double(places[output]);
      } else if (winners[r * outputs + output] == input) {
        sums[input] += g;
      }
    });
    for (std::size_t i = 0; i < inputs; ++i) dx.as<T>()[r * inputs + i] = T(sums[i]);
  }
}

}  // namespace lockstep::engine
