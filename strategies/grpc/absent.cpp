// SPDX-License-Identifier: MIT
#include "engine/base/error.h"
#include "strategies/grpc/connection.h"
#include "strategies/grpc/presence.h"
#include "strategies/grpc/server.h"

namespace lockstep::strategies::grpc {

bool available() {
  return false;
}

std::string version() {
  return {};
}

namespace {

[[noreturn]] void fail_absent() {
  engine::fail(
      engine::Code::kInvalid,
      "this build of lockstep has no gRPC, which parameter servers need: install it (Debian: "
      "libgrpc++-dev libprotobuf-dev protobuf-compiler), then run "
      "meson setup --reconfigure -Dgrpc=enabled");
}

}  // namespace

std::unique_ptr<Server> serve(rpc::Service&, const ServeOptions&) {
  fail_absent();
}

std::unique_ptr<rpc::Connection> connect(const std::string&, const ConnectOptions&) {
  fail_absent();
}

}  // namespace lockstep::strategies::grpc
