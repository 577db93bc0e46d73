// SPDX-License-Identifier: MIT
#include "strategies/session/chief_end.h"

#include <thread>

#include "engine/base/error.h"
#include "strategies/grpc/connection.h"
#include "strategies/parameter_server/worker/servers.h"

namespace lockstep::strategies {
namespace {

// Answers every call with the end of the job.
class Refusal : public rpc::Service {
 public:
  explicit Refusal(const std::string& why) : why_("the chief ended the job: " + why) {}
  void call(std::string_view, rpc::Message, std::shared_ptr<const rpc::Caller>,
            rpc::Done done) override {
    done(rpc::failed(engine::Code::kAborted, why_));
  }

 private:
  const std::string why_;
};

}  // namespace

void report_chiefs_end(const ClusterSpec& cluster, const std::string& why, grpc::ServeOptions serve,
                       std::chrono::milliseconds notice) noexcept {
  try {
    const auto until = engine::Clock::now() + notice;
    Refusal refusal(why);
    serve.address = cluster.workers.at(0);
    const auto server = grpc::serve(refusal, serve);
    std::vector<std::unique_ptr<rpc::Connection>> servers;
    for (const std::string& address : cluster.servers)
      servers.push_back(grpc::connect(address, {.tls = serve.tls}));
    Servers(std::move(servers), "", notice).done(why, true, notice);
    std::this_thread::sleep_until(until);
  } catch (const std::exception&) {
    // Tasks that are not reached end by their own deadlines.
  }
}

}  // namespace lockstep::strategies
