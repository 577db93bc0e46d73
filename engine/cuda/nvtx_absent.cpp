// SPDX-License-Identifier: MIT
// Stub for builds without the headers of NVTX, which are part of the CUDA toolkit.
#include "engine/cuda/nvtx.h"

namespace lockstep::engine {

std::unique_ptr<Profiler> nvtx_profiler() {
  return nullptr;
}

}  // namespace lockstep::engine
