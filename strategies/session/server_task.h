// SPDX-License-Identifier: MIT
// A server of a parameter server job as one task: a store and its service on a port. It begins
// empty; what it should hold the chief says, or clients do. What it holds lives as long as the
// task, whoever leaves.
//
// Any thread, but for the end: that is one thread's. Costs the threads that answer (as many as
// processors), and the memory of what is put into it.
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
  grpc::ServeOptions serve = {};  // loopback and any free port, unless told otherwise
  std::uint64_t most_bytes = 0;   // of what clients create: shard_store.h
  // `join` fails after so long without any call, ten times as long before the first; 0: waits.
  std::chrono::milliseconds life = {};
  // What a server that is asked to end gives those that still call it, to save what it holds.
  std::chrono::milliseconds shutdown_timeout{20000};
  engine::Log log = engine::Log();
};

class ServerTask {
 public:
  virtual ~ServerTask() = default;  // calls under way end with kUnavailable at their callers
  virtual std::string address() const = 0;  // "127.0.0.1:41234"
  virtual ShardStore& store() = 0;

  // Returns what the chief said when it said that the job is over; health checks then hear that
  // nobody serves. Nothing where `interrupt` became another number than 0 (looked at some times a
  // second; null: nobody interrupts) and nobody called for five seconds, or for longer than
  // `shutdown_timeout` after it, or `until` passed. Throws Error(kTimeout) after a silence of
  // `life`: clients who ask for the status count as silent.
  virtual std::optional<ShardService::End> join(
      engine::Clock::time_point until = engine::Clock::time_point::max(),
      const std::atomic<int>* interrupt = nullptr) = 0;
};

// Serves when it returns. Throws what grpc::serve throws, first of all Error(kInvalid) in a build
// without gRPC (absent.cpp).
std::unique_ptr<ServerTask> server_task(const ServerTaskOptions& options = {});

}  // namespace lockstep::strategies
