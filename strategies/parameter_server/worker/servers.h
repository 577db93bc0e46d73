// SPDX-License-Identifier: MIT
// The chief's calls to all servers of its job: open, start values, checkpoints, polls.
//
// Throws a server's error with its address. Every call has a deadline. Not thread-safe, with these
// exceptions: `fail` may be called at any time, and `probe` and `restore` of one server may run
// beside all calls but `open`. Built only with protobuf.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
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

// Returns one server's part of the job.
JobSpec job_spec(const VariablePlacement& placement, std::size_t server, engine::DType dtype,
                 const engine::UpdateRule& rule, const UpdatePolicy& policy);

class Servers {
 public:
  // The prefix of the servers' own arrays in checkpoints: versions, and numbers of pushes.
  static constexpr const char* kOwnState = "parameter_server.";

  using Connections = std::vector<std::unique_ptr<rpc::Connection>>;
  Servers(Connections connections, std::string container, std::chrono::milliseconds deadline);
  ~Servers();
  std::size_t size() const { return connections_.size(); }
  std::string address(std::size_t server) const { return connections_[server]->address(); }

  // Throws Error(kInvalid) if a later generation of another job is open.
  void open(const std::vector<JobSpec>& specs, std::uint64_t generation);
  // Sets the start values of all variables in the arena.
  void assign(const ArenaShards& shards, engine::Range range, const std::byte* weights,
              engine::DType dtype, std::size_t chunk_bytes);
  // Draws and sets the start values of tables that are not in the arena, in ranges of rows.
  void assign(const RowShards& tables, std::uint64_t seed, engine::DType dtype,
              std::size_t chunk_bytes);
  std::vector<engine::Shard> save(const std::string& folder, std::int64_t step);
  // `zero`: see restore_shard.
  void restore(const std::string& folder, std::int64_t step, const std::vector<std::string>& zero);
  void restore(std::size_t server, const std::string& folder, std::int64_t step,
               const std::vector<std::string>& zero);
  // Ends waiting calls with this error, except those that send values. Lasts until `open`.
  void fail(const engine::Error& why);
  void done(const std::string& why, bool failed, std::chrono::milliseconds deadline);

  // Returns whether the server has all values. Opens its part of the job again if it was lost.
  // Throws Error(kUnavailable) if the server is unreachable.
  bool probe(std::size_t server, std::chrono::milliseconds deadline);

 private:
  using Replies = std::map<std::size_t, std::future<rpc::Reply>>;  // by server
  void start(std::string_view method, std::size_t server, rpc::Message request,
             std::chrono::milliseconds deadline, Replies& replies);
  // Waits for all replies, and throws the first error. `fail` ends it early unless `must_wait`.
  std::vector<rpc::Message> finish(std::string_view method, Replies replies,
                                   bool must_wait = false);
  // Sends `request_of(server)` to all servers and waits for all answers.
  template <class RequestOf>
  std::vector<rpc::Message> call_all(std::string_view method, std::chrono::milliseconds deadline,
                                     const RequestOf& request_of);
  std::chrono::milliseconds deadline_of_files() const;
  rpc::Message open_request(std::size_t server) const;
  rpc::Message restore_request(const std::string& folder, std::int64_t step,
                               const std::vector<std::string>& zero) const;
  // Sends the values of chunks, by server, to all servers at once.
  using Values = std::function<std::vector<rpc::Slice>(const ShardChunk& chunk)>;
  void assign(const std::vector<std::vector<ShardChunk>>& chunks, const Values& values);
  const std::string container_;
  const std::chrono::milliseconds deadline_;
  std::vector<JobSpec> specs_;
  std::uint64_t generation_ = 0;
  Connections connections_;
  std::mutex mutex_;  // guards the members below
  std::optional<engine::Error> failed_;
};

}  // namespace lockstep::strategies
