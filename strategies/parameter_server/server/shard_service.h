// SPDX-License-Identifier: MIT
// The service that executes the calls of messages.proto on a store, with any transport. Messages
// are untrusted: any bytes get a reply, and a refused message changes nothing. messages.proto
// describes the calls; shard_store.h describes the errors.
//
// Heads have at most kMostHead bytes (about a million rows). Row numbers count in the variable,
// elements of parts in the shard. Assign with parts sets start values of a job; without parts it
// sets a client's variable. The service's own thread reads and writes files. Some times a second it
// also ends calls whose callers left.
//
// Thread-safe. Built only with protobuf.
#pragma once
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "engine/base/log.h"
#include "engine/checkpoint/storage.h"
#include "strategies/parameter_server/rpc/rpc.h"
#include "strategies/parameter_server/rpc/timed_work.h"
#include "strategies/parameter_server/server/shard_store.h"

namespace lockstep::strategies {

class ShardService : public rpc::Service {
 public:
  static constexpr std::size_t kMostHead = std::size_t(4) << 20;

  // The store and the storage must outlive the service. No call may run when it is destroyed.
  ShardService(ShardStore& store, engine::Storage& storage, engine::Log log);
  void call(std::string_view method, rpc::Message request,
            std::shared_ptr<const rpc::Caller> caller, rpc::Done done) override;

  // Waits until the chief reports the end of the job; returns nothing if `until` passes first.
  struct End {
    std::string why = {};
    bool failed = false;
  };
  std::optional<End> join(engine::Clock::time_point until);

 private:
  class Calls;  // the methods
  void sweep();
  ShardStore& store_;
  engine::Storage& storage_;
  engine::Log log_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<End> end_;
  // Last member: its thread ends before the members that it uses.
  TimedWork work_;
};

}  // namespace lockstep::strategies
