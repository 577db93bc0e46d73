// SPDX-License-Identifier: MIT
// The version of this build from meson.build, e.g. "0.1.0". Pure; thread-safe.
#pragma once
#include <string_view>

namespace lockstep::engine {

std::string_view version();

}  // namespace lockstep::engine
