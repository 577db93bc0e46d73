// SPDX-License-Identifier: MIT
// Servers within this process that can be killed with their state and restarted empty. Thread-safe.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/checkpoint/storage.h"
#include "engine/device/device.h"
#include "strategies/parameter_server/rpc/rpc.h"
#include "strategies/parameter_server/server/shard_store.h"

namespace lockstep::test {

class MortalServers {
 public:
  MortalServers(int servers, engine::Device& device, engine::DType dtype);
  ~MortalServers();
  std::unique_ptr<strategies::rpc::Connection> connect(std::size_t server);
  void kill(std::size_t server);   // later calls fail with kUnavailable
  void start(std::size_t server);  // empty
  strategies::ShardStore& store(std::size_t server);
  // Runs before each call of a server, with the call's method. The hook may sleep.
  std::function<void(std::size_t server, std::string_view method)> on_call;

 private:
  class Gate;
  std::unique_ptr<engine::Storage> storage_;
  std::vector<std::unique_ptr<Gate>> gates_;
};

}  // namespace lockstep::test
