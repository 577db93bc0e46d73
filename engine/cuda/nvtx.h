// SPDX-License-Identifier: MIT
// Ranges for NVIDIA's profilers, by NVTX 3: headers of the toolkit that open the library which a
// profiler names in the environment (NVTX_INJECTION64_PATH), and nothing where none does. There in
// every build, free of foreign types. No GPU is needed. The domain of the ranges is "lockstep".
#pragma once
#include <memory>

#include "engine/base/profiler.h"

namespace lockstep::engine {

// Null where no profiler has started this process, or it does not listen to domains, or there was
// no toolkit when this was built. The first call looks for it; any thread.
std::unique_ptr<Profiler> nvtx_profiler();

}  // namespace lockstep::engine
