// SPDX-License-Identifier: MIT
#include "strategies/grpc/presence.h"

#include <grpcpp/grpcpp.h>

namespace lockstep::strategies::grpc {

bool available() {
  return true;
}

std::string version() {
  return ::grpc::Version();
}

}  // namespace lockstep::strategies::grpc
