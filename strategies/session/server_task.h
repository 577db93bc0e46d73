// SPDX-License-Identifier: MIT
// A server of a parameter server job as a task: a store and its service on a port. It starts empty;
// the chief or clients create its contents. The contents persist until the task ends, even if all
// clients leave.
//
// Thread-safe, except that one thread must destroy it. Costs the answering threads (one per
// processor) and the memory of the contents.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/base/log.h"
#include "strategies/grpc/server.h"
#include "strategies/parameter_server/server/shard_service.h"

namespace lockstep::strategies {

struct ServerTaskOptions {
  grpc::ServeOptions serve = {};  // default: loopback and any free port
  std::uint64_t most_bytes = 0;   // limit for clients' contents: shard_store.h
  // `join` fails after this time without calls, or ten times as long before the first; 0: never.
  std::chrono::milliseconds life = {};
  // Time for clients to save the contents after the server was asked to end.
  std::chrono::milliseconds shutdown_timeout{20000};
  engine::Log log = engine::Log();
};

class ServerTask {
 public:
  // Ends calls in flight with kUnavailable at their callers.
  virtual ~ServerTask() = default;
  virtual std::string address() const = 0;  // "127.0.0.1:41234"
  virtual ShardStore& store() = 0;

  // Waits for the end of the job. Returns the chief's message about it; health checks then fail.
  // Returns nothing if `until` passes. `interrupt`: a request to end, by a value other than 0,
  // which is polled some times a second; null: none. After a request it returns nothing once no
  // call came for five seconds, or after `shutdown_timeout`. Throws Error(kTimeout) after `life`
  // without calls; status requests do not count as calls.
  virtual std::optional<ShardService::End> join(
      engine::Clock::time_point until = engine::Clock::time_point::max(),
      const std::atomic<int>* interrupt = nullptr) = 0;
};

// Starts a server, which serves when the call returns. Throws the errors of grpc::serve, such as
// Error(kInvalid) in a build without gRPC (absent.cpp).
std::unique_ptr<ServerTask> server_task(const ServerTaskOptions& options = {});

}  // namespace lockstep::strategies
