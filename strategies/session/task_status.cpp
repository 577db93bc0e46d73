// SPDX-License-Identifier: MIT
#include "strategies/session/task_status.h"

#include "strategies/grpc/connection.h"
#include "strategies/parameter_server/worker/variable_client.h"

namespace lockstep::strategies {

std::string task_status(const std::string& address, const grpc::TlsFiles& tls,
                        engine::Clock::time_point deadline) {
  const auto connection = grpc::connect(address, {.tls = tls});
  return VariableClient(*connection).status(deadline);
}

}  // namespace lockstep::strategies
