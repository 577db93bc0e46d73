// SPDX-License-Identifier: MIT
// Times single convolutions on one core, float32. It prints a row per shape: for each direction
// milliseconds and the GF/s of the direct method's products. A row ends with two shares: of the
// core's peak (engine/cpu/peak.h), and of the time of all convolutions of the list in a step.
// Inputs are written before each run and results are read after it, both untimed. Times are medians
// of several runs; the first does not count. Prints a table in Markdown.
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
  std::size_t count = 1;  // calls per step
  // False if a step does not need the gradient of its input.
  bool of_inputs = true;
};

// Returns the convolutions of "resnet50", or one that is given as
// "height,width,channels,filters,kernel,stride,padding,count". Throws Error(kInvalid) for other
// texts.
std::vector<CountedConvolution> parse_convolutions(const std::string& text);

void bench_convolutions(std::span<const CountedConvolution> convolutions, std::size_t rows,
                        Kernels kernels);

}  // namespace lockstep::engine
