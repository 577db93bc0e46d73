// SPDX-License-Identifier: MIT
// Convolutions alone on one core, float32: for each shape and direction the milliseconds, the GF/s
// of the direct method's products, the share of what the core can do (engine/cpu/peak.h), and the
// share of the time that all convolutions of the list take in a step. Inputs are written before
// each run and results read after it, outside the clock; medians of several runs, the first not
// counted. Prints a table in Markdown.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/ops/ops.h"

namespace lockstep::engine {

struct CountedConvolution {
  ConvolutionSpec spec;
  std::size_t count = 1;  // how often a step has it
  bool of_inputs = true;  // whether a step wants the gradient of its input
};

// "resnet50", or "height,width,channels,filters,kernel,stride,padding,count"; else Error(kInvalid).
std::vector<CountedConvolution> parse_convolutions(const std::string& text);

void bench_convolutions(std::span<const CountedConvolution> convolutions, std::size_t rows,
                        Kernels kernels);

}  // namespace lockstep::engine
