// SPDX-License-Identifier: MIT
// Availability of gRPC in this build. Without it `serve` and `connect` throw Error(kInvalid) and
// say how to get it (absent.cpp).
#pragma once
#include <string>

namespace lockstep::strategies::grpc {

bool available();
std::string version();  // "1.51.1"; empty if unavailable

}  // namespace lockstep::strategies::grpc
