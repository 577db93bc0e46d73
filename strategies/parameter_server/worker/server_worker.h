// SPDX-License-Identifier: MIT
// One replica's conversation with all servers: weights into its arena, gradients out of it, in
// chunks that travel at once. Gradients lie in the arena until a call that sends them has ended, so
// the next backward may begin when `synchronize` has returned; weights are copied into the arena by
// the replica's own thread alone, inside `wait`. Of tables that are compact in the graph the rows
// that its batch touches travel, and nothing else: their numbers in the heads of messages, their
// values as all others. Answers to pushes may bring the next step's weights (`Step::Next`).
//
// What it throws is what a server answered, with its address; Error(kTimeout) after the deadline.
// Then the conversation is over: another is made for the next try.
//
// Threads: the replica's; `fail` any. Built only where there is protobuf.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/nn/graph.h"
#include "engine/tensor/tensor.h"
#include "engine/train/strategy.h"
#include "strategies/parameter_server/rpc/rpc.h"
#include "strategies/parameter_server/worker/arena_shards.h"
#include "strategies/parameter_server/worker/row_shards.h"

namespace lockstep::strategies {

struct ServerWorkerTerms {
  std::string container = {};
  std::uint32_t worker = 0;
  engine::DType dtype = engine::DType::kFloat32;
  bool bfloat16 = false;     // on the wire
  bool synchronous = false;  // touched rows of a shard are pushed in one message
  std::size_t chunk_bytes = std::size_t(4) << 20;
  std::chrono::milliseconds deadline{60000};
};

class ServerWorker {
 public:
  // What the replica has of a model. All of it outlives the conversation.
  struct Arena {
    const ArenaShards* shards = nullptr;
    const RowShards* rows = nullptr;  // of compact tables; null: there are none
    std::byte* weights = nullptr;
    const std::byte* gradients = nullptr;
    std::size_t trainable = 0, parameters = 0;  // elements
  };
  // A connection to each server, which tries again by itself.
  ServerWorker(const ServerWorkerTerms& terms, const Arena& arena,
               std::vector<std::unique_ptr<rpc::Connection>> servers);
  ~ServerWorker();  // calls under way are broken off

  // In the place of another, which is over: its pushes are not numbered again.
  void go_on_from(const ServerWorker& before);
  // From now on: of these shards, by this incarnation of the worker (counted by the scheduler),
  // whose pushes are numbered apart from those of others.
  void begin(std::uint64_t generation, std::uint64_t incarnation);

  // A step begins: asks for the weights of a range, of at least that version, but for those that
  // come with the answers to the last step's pushes: after such a step, all that are not frozen.
  void pull(engine::Range range, std::int64_t at_least);
  // Asks for the rows that the graph's batch touches, for they are known (Graph::find_touched). Of
  // an evaluation once a batch, of a step once. They stay as they are until the step is settled.
  void pull_rows(const engine::Graph& graph, std::int64_t at_least);
  // Waits until those that were asked for and meet the range are in the arena.
  void wait(engine::Range range);
  // Gradients up to `end` are final: sends the chunks that end there or before and were not sent in
  // this step. `step`: synchronous, the version that they are for.
  // `next`: asynchronous, which answers bring the weights after the update, for the next step:
  // those to chunks that are sent when all gradients are final, or all of them.
  struct Step {
    enum class Next : std::uint8_t { kNone, kLast, kAll };
    std::int64_t version = 0;
    double rate = 0;
    Next next = Next::kNone;
  };
  void push(std::size_t end, const Step& step);
  // Waits until all that was pushed was answered.
  void synchronize();
  // All waiting ends with this.
  void fail(const engine::Error& why);

  double waited_seconds() const { return waited_; }
  // Of pushes since the start, by their outcome. The replica's thread.
  struct Counts {
    std::uint64_t pushes = 0, late = 0, too_stale = 0;
    engine::Traffic traffic = {};
    std::uint64_t staleness_sum = 0, staleness_most = 0;
  };
  Counts counts() const;

 private:
  // One message's gradients: parts of shards, or rows of one.
  struct Chunk {
    std::size_t server = 0;
    const ShardChunk* parts = nullptr;
    std::optional<RowChunk> rows = {};
    bool last = false;  // of its server in this step
    std::size_t end() const { return rows ? rows->span.end : parts->span.end; }
  };
  struct Pull {
    std::size_t server = 0;
    engine::Range span = {};  // of the arena: who needs some of it waits; rows: of the whole table
    std::vector<engine::Range> runs = {};  // where the values go, one behind the other
    bool rows = false, pushed = false;     // pushed: came with the answer to a push
    std::optional<rpc::Reply> reply = {};
    bool taken = false;
  };
  struct Shared;  // with the replies' threads
  static std::shared_ptr<Pull> pull_of(std::size_t server, const ShardChunk& chunk);
  std::size_t bytes_of(const Pull& pull) const;  // on the wire
  void start(const std::shared_ptr<Pull>& pull, std::string_view method, std::string head);
  std::int64_t version_of(const Pull& pull, const rpc::Reply& reply) const;
  void take(Pull& pull);
  void plan_pushes();
  template <class Request>
  void fill(Request& request, std::int64_t at_least);
  template <class Request>
  void fill(Request& request, const Chunk& chunk, const Step& step);
  template <class Test>
  void wait_until(std::unique_lock<std::mutex>& lock, Test test);

  const ServerWorkerTerms terms_;
  const Arena arena_;
  std::size_t width_;
  std::vector<std::pair<std::size_t, ShardChunk>> dense_;  // of the gradients, by server
  std::vector<RowChunk> touched_;                          // of the gradients of this step
  std::vector<Chunk> chunks_;                              // both, by their end
  std::size_t sent_ = 0;                                   // of this step
  std::uint64_t generation_ = 0;
  std::vector<std::uint64_t> sequence_;              // of the last push to each server
  std::vector<std::optional<std::int64_t>> pulled_;  // of each server: the version of the weights
  std::vector<std::shared_ptr<Pull>> pulls_, prefetched_;  // of this step, of the next
  double waited_ = 0;
  Counts counts_;
  std::shared_ptr<Shared> shared_;
  std::vector<std::unique_ptr<rpc::Connection>> servers_;  // last: they end first
};

}  // namespace lockstep::strategies
