// SPDX-License-Identifier: MIT
// The memory that a server takes for its clients is bounded, and it reports its status meanwhile.
#include "strategies/parameter_server/server/memory_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <latch>
#include <thread>

#include "collectives/topology/machine.h"
#include "engine/reference/reference_device.h"
#include "strategies/parameter_server/server/shard_status.h"
#include "test/strategies/observed_device.h"
#include "test/strategies/parameter_server/server/small_server.h"

namespace lockstep::test {
namespace memory_budget_test {

using namespace strategies;
using engine::Code;
using testing::HasSubstr;
using How = NamedVariables::How;

NamedVariables::Value floats(std::size_t elements) {
  return {{elements}, engine::DType::kFloat32, slices_of(std::vector<float>(elements))};
}

// Returns how many calls of `one` succeed before one is refused for memory.
std::size_t count_until_refused(const std::function<void(std::size_t)>& one) {
  constexpr std::size_t kVeryMany = 100'000;
  for (std::size_t i = 0; i < kVeryMany; ++i)
    if (!refused([&] { one(i); }, Code::kMemory).empty()) return i;
  return kVeryMany;
}

class Budget : public testing::Test {
 protected:
  std::unique_ptr<engine::Ops> ops = engine::reference_ops(engine::DType::kFloat32);
};

TEST_F(Budget, CountsArraysOfJobsAndVariables) {
  ShardStore small(*ops, 12'000);
  JobSpec spec;
  spec.shards = {whole_shard("w", {12})};
  small.assign("c", "x", How::kInit, floats(10));
  spec.rule = adam_rule();
  EXPECT_THAT(refused([&] { small.open("c", 1, spec); }, Code::kMemory),
              HasSubstr("the job of container 'c' needs"));
  spec.rule = sgd_rule();
  EXPECT_EQ(small.open("c", 1, spec), 48u);
  EXPECT_EQ(small.open("c", 2, spec), 48u);  // replaces the first
  EXPECT_NE(refused([&] { small.assign("c", "y", How::kInit, floats(4)); }, Code::kMemory), "");
  small.reset("c");
  EXPECT_EQ(small.budget().taken(), 0u);
}

// Names and empty entries count: more than 3,000 bytes for a container with a long name, 500 for an
// empty variable, and 5,000 for an empty job of ten workers.
TEST_F(Budget, CountsNamesAndWhatIsEmpty) {
  constexpr std::size_t kMost = 1 << 20;
  ShardStore store(*ops, kMost);
  const std::string name(1000, 'n');
  EXPECT_LT(count_until_refused([&](std::size_t i) {
              store.assign(name + std::to_string(i), "x", How::kInit, floats(0));
            }),
            kMost / 1000 / 3);
  ShardStore other(*ops, kMost);
  EXPECT_LT(count_until_refused([&](std::size_t i) {
              other.assign("c", std::to_string(i), How::kInit, floats(0));
            }),
            kMost / 500);
  ShardStore jobs(*ops, kMost);
  JobSpec spec;
  spec.policy.workers = 10;
  EXPECT_LT(count_until_refused([&](std::size_t i) { jobs.open(std::to_string(i), 1, spec); }),
            kMost / 5000);
  for (ShardStore* full : {&store, &other, &jobs}) EXPECT_LE(full->budget().taken(), kMost);
}

TEST_F(Budget, RefusesLongNames) {
  ShardStore store(*ops);
  const std::string name(1025, 'n');
  JobSpec spec;
  EXPECT_NE(refused([&] { store.assign(name, "x", How::kInit, floats(1)); }, Code::kInvalid), "");
  EXPECT_NE(refused([&] { store.assign("c", name, How::kInit, floats(1)); }, Code::kInvalid), "");
  EXPECT_NE(refused([&] { store.open(name, 1, spec); }, Code::kInvalid), "");
  spec.shards = {whole_shard(name, {1})};
  EXPECT_NE(refused([&] { store.open("c", 1, spec); }, Code::kInvalid), "");
  EXPECT_EQ(store.containers().size(), 0u);
}

TEST_F(Budget, OfTheMachineIsLessThanWhatIsFree) {
  const std::uint64_t free = collectives::available_memory();
  if (free == 0) GTEST_SKIP() << "the system does not say what is free";
  const MemoryBudget budget(0);
  EXPECT_NE(refused([&] { budget.take(free, "all", 0); }, Code::kMemory), "");
  ShardStore store(*ops);
  JobSpec huge;
  huge.shards = {whole_shard("w", {std::size_t(1) << 47})};
  EXPECT_THAT(refused([&] { store.open("c", 1, huge); }, Code::kMemory),
              HasSubstr("free at its start"));
  EXPECT_EQ(store.budget().taken(), 0u);
  EXPECT_EQ(store.containers().size(), 0u);
}

JobSpec two_workers(bool synchronous) {
  JobSpec spec;
  spec.shards = {whole_shard("w", {1000})};
  spec.policy.workers = 2;
  spec.policy.synchronous = synchronous;
  return spec;
}

TEST_F(Budget, CountsGradientsAndCallsThatWait) {
  SmallServer server(two_workers(true));
  const std::uint64_t before = server.store.budget().taken();
  const std::vector<float> gradient(1000, 1);
  server.push(server.order(0, gradient));
  EXPECT_GE(server.store.budget().taken(), before + 4000);
  server.push(server.order(1, gradient));
  EXPECT_LT(server.store.budget().taken(), before + 4000);

  const std::uint64_t rest = server.store.budget().taken();
  PullOrder order;
  order.parts = {{0, 0, 1000}};
  order.at_least = 1000;
  const auto caller = std::make_shared<TestCaller>();
  server.job().pull(order, caller, [](ShardAnswer) {});
  EXPECT_GE(server.store.budget().taken(), rest + 1000);
  caller->go();
  server.store.drop_gone();
  EXPECT_EQ(server.store.budget().taken(), rest);
}

TEST_F(Budget, CountsRangesThatAClientCuts) {
  ShardStore store(*ops, 60'000);
  JobSpec spec;
  spec.shards = {whole_shard("w", {10'000})};
  store.open("c", 1, spec);
  const std::vector<float> one(1);
  EXPECT_LT(count_until_refused([&](std::size_t i) {
              store.assign_parts("c", 1, {{0, 2 * i, 2 * i + 1}}, slices_of(one));
            }),
            500u);
}

TEST_F(Budget, CountsChunksThatReadersKeep) {
  SmallServer server(two_workers(false));
  const std::uint64_t before = server.store.budget().taken();
  {
    const auto lent = server.store.read("job", "w");
    server.push(server.order(0, std::vector<float>(1000, 1)));
    EXPECT_GE(server.store.budget().taken(), before + 4000);
  }
}

// Arithmetic blocks neither the status nor unrelated calls.
TEST_F(Budget, TellsOfItselfWhileOneAdds) {
  std::latch begun(1), go_on(1);
  const auto slow =
      observed(engine::reference_ops(engine::DType::kFloat32), [&](const engine::ReduceArguments&) {
        begun.count_down();
        go_on.wait();
      });
  ShardStore store(*slow);
  store.assign("c", "x", How::kInit, floats(10));
  auto adding =
      std::async(std::launch::async, [&] { store.assign("c", "x", How::kAdd, floats(10)); });
  begun.wait();
  auto others = std::async(std::launch::async, [&] {
    store.assign("c", "y", How::kInit, floats(10));
    JobSpec spec;
    spec.shards = {whole_shard("w", {12})};
    store.open("c", 1, spec);
    return store.read("c", "x").body.size() + status_json(store).size();
  });
  EXPECT_EQ(others.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  go_on.count_down();
  EXPECT_GT(others.get(), 0u);
  adding.get();
}

// A job's memory is allocated without the store's lock. The test retries, because a busy machine
// may leave no time to ask for the status.
TEST_F(Budget, TellsOfItselfWhileAJobIsOpened) {
  int told = 0;
  for (int tries = 0; tries < 50 && told <= 3; ++tries) {
    ShardStore store(*ops);
    JobSpec spec;
    spec.shards = {whole_shard("w", {std::size_t(1) << 24})};
    auto opening = std::async(std::launch::async, [&] { return store.open("c", 1, spec); });
    const auto under_way = [&] {
      return opening.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
    };
    while (store.budget().taken() == 0 && under_way()) std::this_thread::yield();
    for (told = 0; under_way(); ++told) EXPECT_FALSE(status_json(store).empty());
    EXPECT_EQ(opening.get(), spec.bytes());
  }
  EXPECT_GT(told, 3);
}

}  // namespace memory_budget_test
}  // namespace lockstep::test
