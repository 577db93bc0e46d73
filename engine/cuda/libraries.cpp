// SPDX-License-Identifier: MIT
#include "engine/cuda/libraries.h"

#include <fmt/core.h>

#include <string_view>

namespace lockstep::engine::cuda {
namespace {

// Both libraries have used this version encoding since their majors 12 and 9.
std::string name_and_version(std::string_view library, std::size_t version) {
  return fmt::format("{} {}.{}.{}", library, version / 10000, version % 10000 / 100, version % 100);
}

}  // namespace

Libraries load_libraries() {
  return {.products = load_cublas_lt(), .convolutions = load_cudnn()};
}

std::string version_text(const CublasLtFunctions& products) {
  return name_and_version("cuBLASLt", products.version());
}

std::string version_text(const Cudnn& convolutions) {
  return name_and_version("cuDNN", convolutions.version());
}

std::string version_text(const Libraries& libraries, bool tf32) {
  return fmt::format("{}, {}{}", version_text(libraries.products),
                     version_text(libraries.convolutions), tf32 ? ", TF32" : "");
}

}  // namespace lockstep::engine::cuda
