// SPDX-License-Identifier: MIT
#include "engine/runtime/profilers.h"

#include "engine/cuda/nvtx.h"

namespace lockstep::engine {

std::unique_ptr<Profiler> profiler() {
  return nvtx_profiler();
}

}  // namespace lockstep::engine
