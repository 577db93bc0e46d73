// SPDX-License-Identifier: MIT
// A store with one training job in container "job", as small as tests want it, and calls to it
// whose answers are there when they return. One thread, or one object a thread.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "strategies/parameter_server/server/shard_store.h"

namespace lockstep::test {

// Slices of `bytes` each (0: one slice), which own their memory; `offset` bytes stand before each,
// so that it is not aligned.
std::vector<strategies::rpc::Slice> slices_of(std::span<const float> values, std::size_t bytes = 0,
                                              std::size_t offset = 0);
std::vector<float> floats_of(const std::vector<strategies::rpc::Slice>& body);

// A shard that is its whole variable.
strategies::ShardSpec whole_shard(const std::string& name, engine::Shape shape);
engine::UpdateRule sgd_rule(double momentum = 0);
engine::UpdateRule adam_rule();

// A caller that goes when it is told to.
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
  // Opens the job in generation 1 and gives element i of each shard the start value
  // `start(shard, i)`.
  explicit SmallServer(const strategies::JobSpec& spec,
                       const std::function<float(std::size_t, std::size_t)>& start = {});

  // A push by `worker` of the whole of each dense shard: `gradient` is that of all of them, one
  // behind the other. Takes the next sequence number, and the version `pulled` unless told.
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
  std::vector<std::uint64_t> sequence;  // by worker: of the last push
  std::vector<std::int64_t> pulled;     // by worker
};

// What the error says; "" where there was none.
std::string refused(const std::function<void()>& work, engine::Code code);

}  // namespace lockstep::test
