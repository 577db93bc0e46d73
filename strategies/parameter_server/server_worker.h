// SPDX-License-Identifier: MIT
// One replica's conversation with all servers: weights into its arena, gradients out of it, in
// chunks that travel at once. Gradients lie in the arena until a call that sends them has ended, so
// the next backward may begin when `settle` has returned; weights are copied into the arena by the
// replica's own thread alone, inside `wait`.
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

#include "engine/tensor/tensor.h"
#include "strategies/parameter_server/arena_shards.h"
#include "strategies/parameter_server/rpc.h"

namespace lockstep::strategies {

struct ServerWorkerTerms {
  std::string container = {};
  std::uint32_t worker = 0;
  engine::DType dtype = engine::DType::kFloat32;
  bool bfloat16 = false;  // on the wire
  std::size_t chunk_bytes = std::size_t(4) << 20;
  std::chrono::milliseconds deadline{60000};
};

class ServerWorker {
 public:
  // What the replica has of a model. All of it outlives the conversation.
  struct Arena {
    const ArenaShards* shards = nullptr;
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
  // From now on: of these shards, by this incarnation of the worker (counted by the coordinator),
  // whose pushes are numbered apart from those of others.
  void begin(std::uint64_t generation, std::uint64_t incarnation);

  // Asks for the weights of a range, of at least that version.
  void pull(engine::Range range, std::int64_t at_least);
  // Waits until those that were asked for and meet the range are in the arena.
  void wait(engine::Range range);
  // Gradients up to `end` are final: sends the chunks that end there or before and were not sent in
  // this step. `step`: synchronous, the version that they are for.
  struct Step {
    std::int64_t version = 0;
    double rate = 0;
  };
  void push(std::size_t end, const Step& step);
  // Waits until all that was pushed was answered.
  void settle();
  // All waiting ends with this.
  void fail(const engine::Error& why);

  double waited_seconds() const { return waited_; }
  // Of pushes since the start, by their outcome. The replica's thread.
  struct Counts {
    std::uint64_t pushes = 0, late = 0, too_stale = 0, bytes_pushed = 0, bytes_pulled = 0;
    std::uint64_t staleness_sum = 0, staleness_most = 0;
  };
  Counts counts() const;

 private:
  struct Chunk {
    std::size_t server = 0;
    ShardChunk of = {};
    bool last = false;  // of its server
  };
  struct Pull {
    std::size_t server = 0;
    ShardChunk of = {};
    std::optional<rpc::Reply> reply = {};
    bool taken = false;
  };
  struct Shared;  // with the replies' threads
  void take(Pull& pull);
  template <class Test>
  void wait_until(std::unique_lock<std::mutex>& lock, Test test);

  const ServerWorkerTerms terms_;
  const Arena arena_;
  std::size_t width_;
  std::vector<Chunk> chunks_;  // of the gradients, by their end
  std::size_t sent_ = 0;       // of this step
  std::uint64_t generation_ = 0;
  std::vector<std::uint64_t> sequence_;              // of the last push to each server
  std::vector<std::optional<std::int64_t>> pulled_;  // of each server: the version of the weights
  std::vector<std::shared_ptr<Pull>> pulls_;
  double waited_ = 0;
  Counts counts_;
  std::shared_ptr<Shared> shared_;
  std::vector<std::unique_ptr<rpc::Connection>> servers_;  // last: they end first
};

}  // namespace lockstep::strategies
