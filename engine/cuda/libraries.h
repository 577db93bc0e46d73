// SPDX-License-Identifier: MIT
// NVIDIA's libraries that a GPU computes with, opened together. Plain data; any thread.
#pragma once
#include <string>

#include "engine/cuda/cublas_lt_functions.h"
#include "engine/cuda/cudnn.h"

namespace lockstep::engine::cuda {

struct Libraries {
  CublasLtFunctions products;
  Cudnn convolutions;
};

// Reads files of hundreds of megabytes where no one has before. Throws Error(kUnavailable), a line
// about the first that is missing.
Libraries load_libraries();

// "cuBLASLt 13.0.0", "cuDNN 9.19.0".
std::string version_text(const CublasLtFunctions& products);
std::string version_text(const Cudnn& convolutions);

// All that the last bits of their results depend on: both versions, and whether products of float32
// may be rounded to TF32.
std::string version_text(const Libraries& libraries, bool tf32);

}  // namespace lockstep::engine::cuda
