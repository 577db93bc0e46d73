// SPDX-License-Identifier: MIT
// One replica's communication with all servers: it pulls weights into the arena and pushes
// gradients out of it, in concurrent chunks. Gradients are sent from the arena, so the next
// backward may begin only after `synchronize`. Only the replica's own thread copies weights into
// the arena, inside `wait`. For compact tables only the rows that the batch touches travel, with
// their numbers in the heads of messages. Replies to pushes may contain the next step's weights
// (`Step::Next`).
//
// Throws a server's error, with its address, and Error(kTimeout) after the deadline. The object is
// unusable after an error; a retry needs a new one.
//
// Threads: the replica's thread; `fail` is thread-safe. Built only with protobuf.
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
  bool bfloat16 = false;  // on the wire
  // Pushes all touched rows of a shard in one message.
  bool synchronous = false;
  std::size_t chunk_bytes = std::size_t(4) << 20;
  std::chrono::milliseconds deadline{60000};
};

class ServerWorker {
 public:
  // Holds the replica's model data, which must outlive the ServerWorker.
  struct Arena {
    const ArenaShards* shards = nullptr;
    const RowShards* rows = nullptr;  // compact tables; null: none
    std::byte* weights = nullptr;
    const std::byte* gradients = nullptr;
    std::size_t trainable = 0, parameters = 0;  // elements
  };
  // Takes one connection per server, which must retry by itself.
  ServerWorker(const ServerWorkerTerms& terms, const Arena& arena,
               std::vector<std::unique_ptr<rpc::Connection>> servers);
  ~ServerWorker();  // cancels calls in flight

  // Continues the push numbers and counts of `before`, which failed.
  void go_on_from(const ServerWorker& before);
  // Selects the shards' generation and the worker's incarnation (counted by the scheduler). Each
  // incarnation has its own push numbers.
  void begin(std::uint64_t generation, std::uint64_t incarnation);

  // Begins a step: requests the weights of a range, of at least version `at_least`. Weights that
  // come with the replies to the last step's pushes are not requested. After a step with such
  // replies `range` must be all trainable parameters.
  void pull(engine::Range range, std::int64_t at_least);
  // Requests the rows that the graph's batch touches (Graph::find_touched): once per batch of an
  // evaluation, once per step of training. The touched rows must stay constant until the step is
  // synchronized.
  void pull_rows(const engine::Graph& graph, std::int64_t at_least);
  // Waits until all requested weights that overlap the range are in the arena.
  void wait(engine::Range range);
  // Describes the pushes of a step. `version`: synchronous, the version that the gradients are for.
  // `next`: asynchronous, the replies that bring the updated weights for the next step. kLast:
  // replies to chunks that are sent after backward.
  struct Step {
    enum class Next : std::uint8_t { kNone, kLast, kAll };
    std::int64_t version = 0;
    double rate = 0;
    Next next = Next::kNone;
  };
  // Sends the chunks that end at or before `end`, up to which gradients are final, and that were
  // not sent in this step.
  void push(std::size_t end, const Step& step);
  // Waits until the servers have answered all pushes.
  void synchronize();
  // Ends all waits with this error.
  void fail(const engine::Error& why);

  double waited_seconds() const { return waited_; }
  // Counts pushes since the start, by outcome. Only for the replica's thread.
  struct Counts {
    std::uint64_t pushes = 0, late = 0, too_stale = 0;
    engine::Traffic traffic = {};
    std::uint64_t staleness_sum = 0, staleness_most = 0;
  };
  Counts counts() const;

 private:
  // Holds the gradients of one message: parts of shards, or rows of one shard.
  struct Chunk {
    std::size_t server = 0;
    const ShardChunk* parts = nullptr;
    std::optional<RowChunk> rows = {};
    bool last = false;  // the server's last in this step
    std::size_t end() const { return rows ? rows->span.end : parts->span.end; }
  };
  struct Pull {
    std::size_t server = 0;
    // Range of the arena that waits for the reply; for rows: the whole table.
    engine::Range span = {};
    // Destinations of the values, in order.
    std::vector<engine::Range> runs = {};
    bool rows = false, pushed = false;  // pushed: in the reply to a push
    std::optional<rpc::Reply> reply = {};
    bool taken = false;
  };
  struct Shared;  // shared with the replies' threads
  static std::shared_ptr<Pull> pull_of(std::size_t server, const ShardChunk& chunk);
  std::size_t bytes_of(const Pull& pull) const;  // bytes on the wire
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
  std::vector<std::pair<std::size_t, ShardChunk>> dense_;  // chunks of gradients, by server
  std::vector<RowChunk> touched_;                          // rows of this step's gradients
  std::vector<Chunk> chunks_;                              // both, by their end
  std::size_t sent_ = 0;                                   // number of chunks sent in this step
  std::uint64_t generation_ = 0;
  std::vector<std::uint64_t> sequence_;  // number of the last push to each server
  // Per server: the oldest version of the pulled weights.
  std::vector<std::optional<std::int64_t>> pulled_;
  std::vector<std::shared_ptr<Pull>> pulls_, prefetched_;  // this step's; the next step's
  double waited_ = 0;
  Counts counts_;
  std::shared_ptr<Shared> shared_;
  std::vector<std::unique_ptr<rpc::Connection>> servers_;  // last member: connections end first
};

}  // namespace lockstep::strategies
