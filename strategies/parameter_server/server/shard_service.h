// SPDX-License-Identifier: MIT
// A store behind the calls of messages.proto, whoever carries them. Every message is taken for
// hostile: whatever its bytes, the answer is a reply, and a refused one changes nothing. What
// messages.proto says holds; what is refused and why stands in shard_store.h.
//
// Heads are at most kMostHead bytes long (a million rows or so). Numbers of rows are the
// variable's; elements of parts the shard's. Assign with parts is for start values of a job;
// without, for a client's variable. Files are written and read on a thread of the service's own,
// and there calls whose callers are gone are ended, some times a second.
//
// Threads: any. Built only where there is protobuf.
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

  // Both outlive the service; nothing calls it when it is destroyed.
  ShardService(ShardStore& store, engine::Storage& storage, engine::Log log);
  void call(std::string_view method, rpc::Message request,
            std::shared_ptr<const rpc::Caller> caller, rpc::Done done) override;

  // Waits until the chief says that the job is over; nothing where it has not by then.
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
  TimedWork work_;  // the last one: its thread ends before what it uses
};

}  // namespace lockstep::strategies
