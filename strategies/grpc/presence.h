// SPDX-License-Identifier: MIT
// Whether this build has gRPC. Without it `serve` and `connect` throw Error(kInvalid) with a line
// that says what would give it (absent.cpp).
#pragma once
#include <string>

namespace lockstep::strategies::grpc {

bool available();
std::string version();  // "1.51.1"; empty where not available

}  // namespace lockstep::strategies::grpc
