// SPDX-License-Identifier: MIT
// Parameter servers within this process: a store and a service each, reached by plain calls. For
// training on one host without further tasks, and for programs that want to see how it goes.
//
// Threads: any. Costs a thread a server, and one a connection. Built only where there is protobuf.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/log.h"
#include "engine/checkpoint/storage.h"
#include "engine/device/device.h"
#include "strategies/parameter_server/rpc/rpc.h"
#include "strategies/parameter_server/server/shard_store.h"

namespace lockstep::strategies {

class LocalCluster {
 public:
  // `device` makes the servers' updates in memory of the host, so it is no GPU. It outlives them,
  // and so does `storage`, if it is given (else the file system).
  LocalCluster(std::size_t servers, engine::Device& device, engine::DType dtype,
               engine::Log log = engine::Log(), engine::Storage* storage = nullptr);
  ~LocalCluster();  // connections have ended
  LocalCluster(LocalCluster&&) noexcept;
  std::size_t servers() const { return servers_.size(); }
  std::unique_ptr<rpc::Connection> connect(std::size_t server) const;
  ShardStore& store(std::size_t server) const;

 private:
  struct Server;
  std::unique_ptr<engine::Storage> own_storage_;
  std::vector<std::unique_ptr<Server>> servers_;
};

}  // namespace lockstep::strategies
