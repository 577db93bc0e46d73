// SPDX-License-Identifier: MIT
// The profiler that observes this process. Only this file's source knows every kind of profiler.
#pragma once
#include <memory>

#include "engine/base/profiler.h"

namespace lockstep::engine {

// Returns null if there is none. Thread-safe; reads the environment once per process.
std::unique_ptr<Profiler> profiler();

}  // namespace lockstep::engine
