// SPDX-License-Identifier: MIT
// The chief's calls to all servers: it opens the job there, gives start values, has checkpoints
// written and read, and looks now and then whether each still has what it was given.
//
// Errors are thrown with the server's address; none is waited for longer than the deadline.
// Threads: one at a time, but for `probe` and `fail`. Built only where there is protobuf.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/train/strategy.h"
#include "strategies/parameter_server/cluster/variable_placement.h"
#include "strategies/parameter_server/rpc/rpc.h"
#include "strategies/parameter_server/server/job_spec.h"
#include "strategies/parameter_server/worker/arena_shards.h"
#include "strategies/parameter_server/worker/row_shards.h"

namespace lockstep::strategies {

// What server number `server` is asked to keep.
JobSpec job_spec(const VariablePlacement& placement, std::size_t server, engine::DType dtype,
                 const engine::UpdateRule& rule, const UpdatePolicy& policy);

class Servers {
 public:
  Servers(std::vector<std::unique_ptr<rpc::Connection>> connections, std::string container,
          std::chrono::milliseconds deadline);
  ~Servers();
  std::size_t size() const { return connections_.size(); }
  std::string address(std::size_t server) const { return connections_[server]->address(); }

  // Throws Error(kInvalid) where another job of a later generation is open there.
  void open(const std::vector<JobSpec>& specs, std::uint64_t generation);
  // Of all variables in the arena.
  void assign(const ArenaShards& shards, engine::Range range, const std::byte* weights,
              engine::DType dtype, std::size_t chunk_bytes);
  // Of tables that lie in no arena: their start values are drawn piece by piece.
  void assign(const RowShards& tables, std::uint64_t seed, engine::DType dtype,
              std::size_t chunk_bytes);
  std::vector<engine::Shard> save(const std::string& folder, std::int64_t step);
  // `zero`: see restore_shard.
  void restore(const std::string& folder, std::int64_t step, const std::vector<std::string>& zero);
  void restore(std::size_t server, const std::string& folder, std::int64_t step,
               const std::vector<std::string>& zero);
  // Calls to all servers that wait end with this error, until `open`. Any thread.
  void fail(const engine::Error& why);
  void done(const std::string& why, bool failed, std::chrono::milliseconds deadline);

  // Whether the server, which is asked to open its part again if it has lost it, has all values.
  // Throws Error(kUnavailable) where it is not there.
  bool probe(std::size_t server, std::chrono::milliseconds deadline);

 private:
  std::vector<rpc::Message> all(std::string_view method, std::vector<rpc::Message> requests,
                                std::chrono::milliseconds deadline);
  std::chrono::milliseconds deadline_of_files() const;
  rpc::Message open_request(std::size_t server) const;
  // Values of chunks, by server; they are asked for in turn and sent to all servers at once.
  using Values = std::function<std::vector<rpc::Slice>(const ShardChunk& chunk)>;
  void assign(const std::vector<std::vector<ShardChunk>>& chunks, const Values& values);
  const std::string container_;
  const std::chrono::milliseconds deadline_;
  std::vector<JobSpec> specs_;
  std::uint64_t generation_ = 0;
  std::vector<std::unique_ptr<rpc::Connection>> connections_;
  std::mutex mutex_;  // of what follows
  std::optional<engine::Error> failed_;
};

}  // namespace lockstep::strategies
