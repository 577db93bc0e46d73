// SPDX-License-Identifier: MIT
#include "engine/cuda/images.h"

#include "engine/base/error.h"

// The begin and end of each image in the file that embed_images.py writes.
extern "C" {
extern const std::byte lockstep_kernels_float32[];
extern const std::byte lockstep_kernels_float32_end[];
extern const std::byte lockstep_kernels_bfloat16[];
extern const std::byte lockstep_kernels_bfloat16_end[];
extern const std::byte lockstep_kernels_float16[];
extern const std::byte lockstep_kernels_float16_end[];
}

namespace lockstep::engine::cuda {

std::span<const std::byte> kernel_image(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return {lockstep_kernels_float32, lockstep_kernels_float32_end};
    case DType::kBFloat16:
      return {lockstep_kernels_bfloat16, lockstep_kernels_bfloat16_end};
    case DType::kFloat16:
      return {lockstep_kernels_float16, lockstep_kernels_float16_end};
    default:
      broken(fmt::format("there are no kernels of {}", name(dtype)));
  }
}

}  // namespace lockstep::engine::cuda
