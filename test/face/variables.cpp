// SPDX-License-Identifier: MIT
// A client of variables that a server keeps for many programs: it counts how often it ran.
//
//   lockstep serve --address 127.0.0.1:2221
//   variables 127.0.0.1:2221
#include <lockstep/lockstep.h>
#include <lockstep/strategies/grpc/connection.h>
#include <lockstep/strategies/parameter_server/worker/variable_client.h>

#include <vector>

int main(int argc, char** argv) try {
  using How = lockstep::strategies::NamedVariables::How;
  const auto connection =
      lockstep::strategies::grpc::connect(argc > 1 ? argv[1] : "127.0.0.1:2221");
  lockstep::strategies::VariableClient server(*connection, "counters");  // the container
  try {
    server.assign("runs", How::kInit, {}, std::vector{0.0f});
  } catch (const lockstep::Error& error) {  // an earlier run made the variable
    if (error.code() != lockstep::Code::kInvalid) throw;
  }
  server.assign("runs", How::kAdd, {}, std::vector{1.0f});  // atomic among clients
  fmt::print("run {}\n", server.read("runs").at(0));
  return 0;
} catch (const lockstep::Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
