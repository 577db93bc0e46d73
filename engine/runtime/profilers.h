// SPDX-License-Identifier: MIT
// The profiler that looks at this process, of whatever kind; this file's source is the only place
// that knows every kind.
#pragma once
#include <memory>

#include "engine/base/profiler.h"

namespace lockstep::engine {

// Null: there is none. Any thread; looks at the environment once a process.
std::unique_ptr<Profiler> profiler();

}  // namespace lockstep::engine
