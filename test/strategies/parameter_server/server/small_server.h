// SPDX-License-Identifier: MIT
// A store with one small training job in container "job", and synchronous calls to it. An object
// belongs to one thread.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "strategies/parameter_server/server/shard_store.h"

namespace lockstep::test {

// Returns slices of `bytes` each (0: one slice) that own their memory. `offset` bytes precede each,
// so that it is not aligned.
std::vector<strategies::rpc::Slice> slices_of(std::span<const float> values, std::size_t bytes = 0,
                                              std::size_t offset = 0);
std::vector<float> floats_of(const std::vector<strategies::rpc::Slice>& body);

// Returns a shard that covers its whole variable.
strategies::ShardSpec whole_shard(const std::string& name, engine::Shape shape);
engine::UpdateRule sgd_rule(double momentum = 0);
engine::UpdateRule adam_rule();

// Simulates a caller that is gone after `go`.
class TestCaller : public strategies::rpc::Caller {
 public:
  std::string peer() const override { return "test"; }
  bool gone() const override { return gone_; }
  void go() { gone_ = true; }

 private:
  std::atomic<bool> gone_{false};
};

class SmallServer {
 public:
  // Opens the job in generation 1. Element i of each shard starts with `start(shard, i)`.
  explicit SmallServer(const strategies::JobSpec& spec,
                       const std::function<float(std::size_t, std::size_t)>& start = {});

  // Returns a push by `worker` of all dense shards, whose gradients are concatenated in `gradient`.
  // Uses the next sequence number, and the version in `pulled`.
  strategies::PushOrder order(std::uint32_t worker, std::span<const float> gradient,
                              double rate = 0.1);
  strategies::ShardAnswer push(const strategies::PushOrder& order);  // throws its error
  void pull(std::uint32_t worker);                                   // remembers the version
  std::vector<float> weights();                                      // of all dense shards
  std::vector<float> rows(std::uint32_t shard, std::vector<std::uint64_t> numbers);
  strategies::TrainingShards& job() { return *store.job("job"); }

  std::unique_ptr<engine::Ops> ops;
  strategies::JobSpec spec;
  strategies::ShardStore store;
  std::vector<std::uint64_t> sequence;  // last push, one per worker
  std::vector<std::int64_t> pulled;     // one per worker
};

// Runs `work` and returns the message of its error, or "" without one.
std::string refused(const std::function<void()>& work, engine::Code code);

}  // namespace lockstep::test
