// SPDX-License-Identifier: MIT
// Parameter servers in this process, each with a store and a service that are called directly.
// Useful for training on one host without further tasks, and for inspection by programs.
//
// Thread-safe. Costs one thread per server and one per connection. Built only with protobuf.
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
  // `device` runs the servers' updates in host memory, so it must not be a GPU. It must outlive the
  // servers; so must `storage` if it is given (default: the file system).
  LocalCluster(std::size_t servers, engine::Device& device, engine::DType dtype,
               engine::Log log = engine::Log(), engine::Storage* storage = nullptr);
  ~LocalCluster();  // connections must have ended
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
