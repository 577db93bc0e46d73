// SPDX-License-Identifier: MIT
#include "strategies/session/local_cluster.h"

#include "engine/base/error.h"
#include "engine/ops/ops.h"
#include "strategies/parameter_server/rpc/in_process.h"
#include "strategies/parameter_server/server/shard_service.h"

namespace lockstep::strategies {

struct LocalCluster::Server {
  Server(engine::Device& device, engine::DType dtype, engine::Storage& storage,
         const engine::Log& log)
      : ops(device.ops(dtype, {})), store(*ops), service(store, storage, log) {
    engine::invariant(ops->in_host_memory(), "servers update variables in memory of the host");
  }
  const std::unique_ptr<engine::Ops> ops;
  ShardStore store;
  ShardService service;
};

LocalCluster::LocalCluster(std::size_t servers, engine::Device& device, engine::DType dtype,
                           engine::Log log, engine::Storage* storage)
    : own_storage_(storage == nullptr ? engine::posix_storage() : nullptr) {
  engine::require(servers >= 1, "a parameter server strategy needs at least one server");
  for (std::size_t i = 0; i < servers; ++i) {
    servers_.push_back(std::make_unique<Server>(
        device, dtype, storage == nullptr ? *own_storage_ : *storage, log));
  }
}

LocalCluster::~LocalCluster() = default;
LocalCluster::LocalCluster(LocalCluster&&) noexcept = default;

std::unique_ptr<rpc::Connection> LocalCluster::connect(std::size_t server) const {
  return std::make_unique<rpc::InProcess>(servers_[server]->service,
                                          fmt::format("server {} of this process", server));
}

ShardStore& LocalCluster::store(std::size_t server) const {
  return servers_[server]->store;
}

}  // namespace lockstep::strategies
