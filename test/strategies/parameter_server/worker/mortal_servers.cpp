// SPDX-License-Identifier: MIT
#include "test/strategies/parameter_server/worker/mortal_servers.h"

#include <shared_mutex>

#include "engine/base/log.h"
#include "engine/ops/ops.h"
#include "strategies/parameter_server/rpc/in_process.h"
#include "strategies/parameter_server/server/shard_service.h"

namespace lockstep::test {

using namespace strategies;
using engine::Code;

class MortalServers::Gate : public rpc::Service {
 public:
  Gate(MortalServers& all, std::size_t number, engine::Device& device, engine::DType dtype)
      : all_(all), number_(number), device_(device), dtype_(dtype) {
    start();
  }
  void start() {
    const std::unique_lock lock(mutex_);
    ops_ = device_.ops(dtype_, {});
    store_ = std::make_unique<ShardStore>(*ops_);
    service_ = std::make_unique<ShardService>(*store_, *all_.storage_,
                                              engine::Log("", engine::Log::Level::kError));
    ++*life_;
  }
  void kill() {
    const std::unique_lock lock(mutex_);  // calls finish first or fail
    ++*life_;                             // later answers are dropped
    service_.reset();
    store_.reset();
  }
  ShardStore& store() { return *store_; }

  void call(std::string_view method, rpc::Message request,
            std::shared_ptr<const rpc::Caller> caller, rpc::Done done) override {
    if (all_.on_call) all_.on_call(number_, method);
    const std::shared_lock lock(mutex_);
    const auto dead = [] { return rpc::failed(Code::kUnavailable, "nobody is there"); };
    if (!service_) return done(dead());
    service_->call(method, std::move(request), std::move(caller),
                   [done, dead, life = life_, now = life_->load()](rpc::Reply reply) {
                     done(*life == now ? std::move(reply) : dead());
                   });
  }

 private:
  MortalServers& all_;
  const std::size_t number_;
  engine::Device& device_;
  const engine::DType dtype_;
  std::shared_mutex mutex_;
  const std::shared_ptr<std::atomic<int>> life_ = std::make_shared<std::atomic<int>>(0);
  std::unique_ptr<engine::Ops> ops_;
  std::unique_ptr<ShardStore> store_;
  std::unique_ptr<ShardService> service_;
};

MortalServers::MortalServers(int servers, engine::Device& device, engine::DType dtype)
    : storage_(engine::posix_storage()) {
  for (int i = 0; i < servers; ++i)
    gates_.push_back(std::make_unique<Gate>(*this, std::size_t(i), device, dtype));
}

MortalServers::~MortalServers() = default;

std::unique_ptr<rpc::Connection> MortalServers::connect(std::size_t server) {
  return std::make_unique<rpc::InProcess>(*gates_[server], fmt::format("server {}", server));
}

void MortalServers::kill(std::size_t server) {
  gates_[server]->kill();
}

void MortalServers::start(std::size_t server) {
  gates_[server]->start();
}

ShardStore& MortalServers::store(std::size_t server) {
  return gates_[server]->store();
}

}  // namespace lockstep::test
