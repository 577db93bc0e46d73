// SPDX-License-Identifier: MIT
// Bands, the work units of lockstep's own convolutions: consecutive output rows of an image.
#pragma once
#include <cstddef>

#include "engine/cuda/kernels/elements.cuh"
#include "engine/cuda/kernels/lines.h"

namespace lockstep::engine::cuda {

struct OutputBand {
  std::size_t image, line;  // image, and line of the first output
  unsigned row, positions;
  template <class Sizes>
  __device__ OutputBand(const Sizes& s, std::size_t number) {
    const auto [of_batch, of_image] = divide(number, s.bands());
    image = of_batch;
    row = unsigned(of_image) * s.band;
    line = (image * s.output_height + row) * s.output_width;
    positions = unsigned(least(s.band, s.output_height - row)) * s.output_width;
  }
};

}  // namespace lockstep::engine::cuda
