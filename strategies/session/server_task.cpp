// SPDX-License-Identifier: MIT
#include "strategies/session/server_task.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/checkpoint/storage.h"
#include "engine/ops/ops.h"
#include "engine/runtime/devices.h"
#include "engine/tensor/tensor.h"
#include "strategies/parameter_server/rpc/shared_service.h"

namespace lockstep::strategies {
namespace {

using engine::Clock;

// Interval of checks for signals and silence.
constexpr std::chrono::milliseconds kBetweenChecks{100};
// Factor of `life` before the first call.
constexpr int kBeginning = 10;
// Silence after which a signal ends the server; the chief calls every second.
constexpr std::chrono::seconds kLonely{5};

// Remembers the time of the last call.
class Heard : public rpc::Service {
 public:
  explicit Heard(rpc::Service& service) : service_(service) {}
  void call(std::string_view method, rpc::Message request,
            std::shared_ptr<const rpc::Caller> caller, rpc::Done done) override {
    if (method != "Status") {
      last_ = Clock::now();
      ever_ = true;
    }
    service_.call(method, std::move(request), std::move(caller), std::move(done));
  }
  Clock::time_point last() const { return last_; }
  bool ever() const { return ever_; }

 private:
  rpc::Service& service_;
  std::atomic<bool> ever_ = false;
  std::atomic<Clock::time_point> last_ = Clock::now();
};

class Task : public ServerTask {
 public:
  explicit Task(const ServerTaskOptions& options)
      : options_(options),
        store_(*ops_, options.most_bytes),
        service_(store_, *storage_, options.log),
        server_(grpc::serve(shared_, options.serve)) {}

  std::string address() const override { return server_->address(); }
  ShardStore& store() override { return store_; }

  std::optional<ShardService::End> join(Clock::time_point until,
                                        const std::atomic<int>* interrupt) override {
    std::optional<Clock::time_point> asked;  // time of a signal to end
    for (;;) {
      const auto now = Clock::now();
      if (auto end = service_.join(std::min(until, now + kBetweenChecks))) {
        server_->healthy(false);
        return end;
      }
      const auto silent = now - heard_.last();
      if (interrupt != nullptr && *interrupt != 0) {
        // A job that is asked to end saves first, and its chief reports the end.
        if (!asked) {
          asked = now;
          if (heard_.ever() && silent <= kLonely && options_.shutdown_timeout.count() > 0)
            options_.log.warning(
                "asked to end, and does when the job is over, in {} s at the latest",
                options_.shutdown_timeout.count() / 1000);
        }
        if (!heard_.ever() || silent > kLonely || now > *asked + options_.shutdown_timeout)
          return std::nullopt;
      }
      if (now >= until) return std::nullopt;
      const auto life = options_.life * (heard_.ever() ? 1 : kBeginning);
      if (life.count() > 0 && silent > life) {
        server_->healthy(false);
        engine::fail(engine::Code::kTimeout,
                     "the server at {} heard nothing from anybody for {:.1f} s: {}, and so it ends",
                     address(), std::chrono::duration<double>(silent).count(),
                     heard_.ever() ? "whoever called it, the chief first of all, is gone"
                                   : "no chief ever came");
      }
    }
  }

 private:
  const ServerTaskOptions options_;
  const std::vector<std::unique_ptr<engine::Device>> devices_ = engine::host_devices();
  const std::unique_ptr<engine::Ops> ops_ = engine::find(devices_, engine::parse_device_id("cpu"))
                                                .ops(engine::DType::kFloat32, {.threads = 1});
  const std::unique_ptr<engine::Storage> storage_ = engine::posix_storage();
  ShardStore store_;
  ShardService service_;
  Heard heard_{service_};
  rpc::SharedService shared_{heard_};
  // Last member: nothing calls the members that it outlives.
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

std::unique_ptr<ServerTask> server_task(const ServerTaskOptions& options) {
  return std::make_unique<Task>(options);
}

}  // namespace lockstep::strategies
