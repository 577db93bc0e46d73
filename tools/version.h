// SPDX-License-Identifier: MIT
// The version of this build, from meson.build.
#pragma once
namespace lockstep::tools {
const char* version();
}  // namespace lockstep::tools
