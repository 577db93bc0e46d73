// SPDX-License-Identifier: MIT
// Parameter servers in a build without gRPC: each call fails and says what is missing
// (strategies/grpc/absent.cpp).
#include <cstdlib>

#include "strategies/grpc/connection.h"
#include "strategies/session/chief_end.h"
#include "strategies/session/parameter_server_job.h"
#include "strategies/session/server_task.h"
#include "strategies/session/task_status.h"

namespace lockstep::strategies {

namespace {

class NoService : public rpc::Service {
 public:
  void call(std::string_view, rpc::Message, std::shared_ptr<const rpc::Caller>,
            rpc::Done done) override {
    done(rpc::failed(engine::Code::kInvalid, "there is no service"));
  }
};

}  // namespace

std::unique_ptr<ServerTask> server_task(const ServerTaskOptions& options) {
  NoService none;
  grpc::serve(none, options.serve);  // throws
  return nullptr;
}

void report_chiefs_end(const ClusterSpec&, const std::string&, grpc::ServeOptions,
                       std::chrono::milliseconds) noexcept {}

std::string task_status(const std::string& address, const grpc::TlsFiles& tls,
                        engine::Clock::time_point) {
  grpc::connect(address, {.tls = tls});  // throws
  return {};
}

ParameterServerJob parameter_server(Session&, const ServerOptions&, const StrategyOptions&) {
  grpc::connect("localhost:1");  // throws
  std::abort();
}

std::unique_ptr<engine::Strategy> make_parameter_server(Session&, const ServerOptions&,
                                                        const StrategyOptions&) {
  grpc::connect("localhost:1");  // throws
  return nullptr;
}

}  // namespace lockstep::strategies
