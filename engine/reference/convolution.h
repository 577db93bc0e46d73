// SPDX-License-Identifier: MIT
// Reference: convolution layers. With r a row, (oy, ox) a position in the output, f a filter, (ky,
// kx) one in the kernel, c a channel, and (iy, ix) = (oy, ox) * stride + (ky, kx) - padding:
//   y[r][oy][ox][f] = activation(sum over ky, kx, c of x[r][iy][ix][c] w[f][ky][kx][c] + b[f])
#pragma once
#include <vector>

#include "engine/ops/checks.h"
#include "engine/reference/dense.h"
#include "engine/reference/reference_ops.h"

namespace lockstep::engine {

// Calls visit(output, input, weight), indices of elements, for each product of the sums above.
template <class Visit>
void each_product(const ConvolutionSpec& s, std::size_t rows, Visit visit) {
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t oy = 0; oy < s.output_height(); ++oy) {
      for (std::size_t ox = 0; ox < s.output_width(); ++ox) {
        for (std::size_t ky = 0; ky < s.kernel_height; ++ky) {
          const std::size_t iy = oy * s.stride + ky - s.padding;  // wraps above the image
          if (iy >= s.height) continue;
          for (std::size_t kx = 0; kx < s.kernel_width; ++kx) {
            const std::size_t ix = ox * s.stride + kx - s.padding;
            if (ix >= s.width) continue;
            for (std::size_t f = 0; f < s.filters; ++f) {
              for (std::size_t c = 0; c < s.channels; ++c) {
                visit(((r * s.output_height() + oy) * s.output_width() + ox) * s.filters + f,
                      ((r * s.height + iy) * s.width + ix) * s.channels + c,
                      ((f * s.kernel_height + ky) * s.kernel_width + kx) * s.channels + c);
              }
            }
          }
        }
      }
    }
  }
}

template <class T>
void ReferenceOps<T>::convolution_forward(const StepState* state, const ConvolutionSpec& spec,
                                          Tensor x, Tensor w, Tensor b, Tensor y) {
  check_spec(spec);
  const std::size_t rows = rows_in_use(state, {x, y});
  const std::size_t outputs = spec.output_height() * spec.output_width() * spec.filters;
  check_batch(x, kType, spec.height * spec.width * spec.channels, "convolution: x");
  check_batch(y, kType, outputs, "convolution: y");
  check_parameter(w, kType, spec.filters * spec.kernel_height * spec.kernel_width * spec.channels,
                  "convolution: w");
  check_parameter(b, kType, spec.filters, "convolution: b");
  std::vector<double> sums(rows * outputs);
  for (std::size_t i = 0; spec.bias && i < sums.size(); ++i) {
    sums[i] = double(b.as<T>()[i % spec.filters]);
  }
  each_product(spec, rows, [&](std::size_t output, std::size_t input, std::size_t weight) {
    sums[output] += double(x.as<T>()[input]) * double(w.as<T>()[weight]);
  });
  for (std::size_t i = 0; i < sums.size(); ++i) {
    y.as<T>()[i] = T(activated<T>(spec.activation, sums[i]));
  }
}

template <class T>
void ReferenceOps<T>::convolution_backward(const StepState* state, const ConvolutionSpec& spec,
                                           Tensor x, Tensor y, Tensor dy, Tensor w, Tensor dx,
                                           Tensor dw, Tensor db, bool accumulate) {
  check_spec(spec);
  const std::size_t rows = rows_in_use(state, {x, y, dy, dx});
  const std::size_t inputs = spec.height * spec.width * spec.channels;
  const std::size_t outputs = spec.output_height() * spec.output_width() * spec.filters;
  const std::size_t weights = spec.filters * spec.kernel_height * spec.kernel_width * spec.channels;
  check_batch(x, kType, inputs, "convolution: x");
  check_batch(y, kType, outputs, "convolution: y");
  check_batch(dy, kType, outputs, "convolution: dy");
  check_batch(dx, kType, inputs, "convolution: dx");
  check_parameter(w, kType, weights, "convolution: w");
  check_parameter(dw, kType, weights, "convolution: dw");
  check_parameter(db, kType, spec.filters, "convolution: db");
  const auto gradient = [&](std::size_t output) {
    return through(spec.activation, y.as<T>()[output], dy.as<T>()[output]);
  };
  std::vector<double> of_inputs(dx ? rows * inputs : 0), of_weights(weights), of_bias(spec.filters);
  each_product(spec, rows, [&](std::size_t output, std::size_t input, std::size_t weight) {
    const double g = gradient(output);
    if (dx) of_inputs[input] += g * double(w.as<T>()[weight]);
    of_weights[weight] += g * double(x.as<T>()[input]);
  });
  for (std::size_t i = 0; i < rows * outputs; ++i) of_bias[i % spec.filters] += gradient(i);
  for (std::size_t i = 0; i < of_inputs.size(); ++i) dx.as<T>()[i] = T(of_inputs[i]);
  for (std::size_t i = 0; dw && i < weights; ++i) {
    deposit(dw.as<T>() + i, of_weights[i], accumulate);
  }
  for (std::size_t i = 0; spec.bias && db && i < spec.filters; ++i) {
    deposit(db.as<T>() + i, of_bias[i], accumulate);
  }
}

}  // namespace lockstep::engine
