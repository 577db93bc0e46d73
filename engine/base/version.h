// SPDX-License-Identifier: MIT
// The version of this build, from meson.build: "0.1.0". Pure; any thread.
#pragma once
#include <string_view>

namespace lockstep::engine {

std::string_view version();

}  // namespace lockstep::engine
