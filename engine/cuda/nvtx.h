// SPDX-License-Identifier: MIT
// Ranges for NVIDIA's profilers by NVTX 3. Its headers come with the toolkit. They open the library
// that a profiler names in the environment (NVTX_INJECTION64_PATH), and otherwise do nothing. This
// header exists in every build and has no foreign types. No GPU is needed. The domain of the ranges
// is "lockstep". To record them, train with --graphs off under `nsys profile`.
#pragma once
#include <memory>

#include "engine/base/profiler.h"

namespace lockstep::engine {

// Returns the profiler. It is null if no profiler started this process or listens to domains, or if
// there was no toolkit at build time. The first call searches for it; thread-safe.
std::unique_ptr<Profiler> nvtx_profiler();

}  // namespace lockstep::engine
