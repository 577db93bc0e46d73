// SPDX-License-Identifier: MIT
// NVIDIA's libraries for computing on a GPU, loaded together. Plain data; thread-safe.
#pragma once
#include <string>

#include "engine/cuda/cublas_lt_functions.h"
#include "engine/cuda/cudnn.h"

namespace lockstep::engine::cuda {

struct Libraries {
  CublasLtFunctions products;
  Cudnn convolutions;
};

// Loads the libraries. The first load reads files of hundreds of megabytes. Throws
// Error(kUnavailable) with one line about the first one that is missing.
Libraries load_libraries();

// Returns "cuBLASLt 13.0.0" or "cuDNN 9.19.0".
std::string version_text(const CublasLtFunctions& products);
std::string version_text(const Cudnn& convolutions);

// Returns everything that the last bits of their results depend on: both versions, and whether
// float32 products may be rounded to TF32.
std::string version_text(const Libraries& libraries, bool tf32);

}  // namespace lockstep::engine::cuda
