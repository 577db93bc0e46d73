// SPDX-License-Identifier: MIT
// The element type of the kernels compiled with this folder in the include path.
#pragma once
namespace lockstep::engine::cuda {

using Element = float;

}  // namespace lockstep::engine::cuda
