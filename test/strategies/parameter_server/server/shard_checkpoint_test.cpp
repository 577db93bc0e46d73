// SPDX-License-Identifier: MIT
// Checkpoints move servers' shards between any numbers of servers, and between strategies.
#include "strategies/parameter_server/server/shard_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/runtime/devices.h"
#include "test/engine/checkpoint/memory_storage.h"
#include "test/strategies/parameter_server/server/small_server.h"

namespace lockstep::test {
namespace shard_checkpoint_test {

using namespace strategies;
using engine::Code;
using engine::DType;
using testing::HasSubstr;

constexpr std::size_t kRows = 12, kColumns = 5, kTable = 30;

// Returns the job of one of `servers` servers. Each holds rows of "w" and of the sparse "table";
// the first also holds "b".
JobSpec part_of_job(std::size_t server, std::size_t servers) {
  JobSpec spec;
  const auto rows = [&](ShardSpec shard, std::size_t all) {
    shard.first_row = all * server / servers;
    shard.rows = all * (server + 1) / servers - shard.first_row;
    spec.shards.push_back(shard);
  };
  rows(whole_shard("w", {kRows, kColumns}), kRows);
  ShardSpec table = whole_shard("table", {kTable, 2});
  table.sparse = true;
  rows(table, kTable);
  if (server == 0) spec.shards.push_back(whole_shard("b", {3}));
  spec.rule = adam_rule();
  spec.policy.workers = 2;
  return spec;
}

float value(std::size_t seed, std::size_t element) {
  return float(std::sin(double(100 * seed + element)));
}

// Runs a job on servers with gradients that depend only on the variable's element.
struct Cluster {
  explicit Cluster(std::size_t servers) : sequences(servers, 0) {
    for (std::size_t s = 0; s < servers; ++s) {
      stores.push_back(std::make_unique<ShardStore>(*ops));
      stores[s]->open("job", 1, part_of_job(s, servers));
    }
  }
  const std::vector<ShardSpec>& shards(std::size_t s) const {
    return stores[s]->job("job")->spec().shards;
  }
  void start() {
    for (std::size_t s = 0; s < stores.size(); ++s) {
      for (std::uint32_t i = 0; i < shards(s).size(); ++i) {
        const ShardSpec& shard = shards(s)[i];
        std::vector<float> values;
        for (std::size_t e = 0; e < shard.elements(); ++e)
          values.push_back(value(1, shard.first_element() + e));
        stores[s]->assign_parts("job", 1, {{i, 0, shard.elements()}}, slices_of(values));
      }
    }
  }
  ShardAnswer push(std::size_t s, PushOrder order, const std::vector<float>& gradient) {
    order.generation = stores[s]->job("job")->generation();
    order.sequence = ++sequences[s];
    order.step = order.pulled = stores[s]->job("job")->version();
    order.rate = 0.05;
    order.body = slices_of(gradient);
    ShardAnswer answer;
    stores[s]->push("job", order, nullptr, [&](ShardAnswer a) { answer = std::move(a); });
    if (answer.error) throw *answer.error;
    return answer;
  }
  // Pushes one step. It touches all of "b", the rows of "w" from 3 on (the others only in even
  // steps), and every fourth row of the table.
  void step(std::size_t number) {
    for (std::size_t s = 0; s < stores.size(); ++s) {
      for (std::uint32_t i = 0; i < shards(s).size(); ++i) {
        const ShardSpec& shard = shards(s)[i];
        PushOrder order;
        std::vector<std::size_t> elements;
        if (shard.sparse) {
          order.rows = ShardRows{i, {}};
          for (std::size_t row = shard.first_row; row < shard.first_row + shard.rows; ++row) {
            if (row % 4 != number % 4) continue;
            order.rows->rows.push_back(row);
            elements.insert(elements.end(), {2 * row, 2 * row + 1});
          }
        } else {
          std::size_t begin = 0;
          if (shard.name == "w" && number % 2 == 1 && shard.first_row < 3)
            begin = std::min<std::size_t>(3 - shard.first_row, shard.rows) * kColumns;
          if (begin == shard.elements()) continue;
          order.parts = {{i, begin, shard.elements()}};
          for (std::size_t e = begin; e < shard.elements(); ++e)
            elements.push_back(shard.first_element() + e);
        }
        std::vector<float> gradient;
        for (const std::size_t element : elements) gradient.push_back(value(number + 7, element));
        push(s, order, gradient);
      }
      PushOrder last;
      last.last = true;
      push(s, last, {});
    }
  }
  std::vector<float> weights() const {  // w, table, b
    std::vector<float> all(kRows * kColumns + kTable * 2 + 3);
    for (std::size_t s = 0; s < stores.size(); ++s) {
      for (const ShardSpec& shard : shards(s)) {
        const std::size_t at = shard.name == "w"       ? 0
                               : shard.name == "table" ? kRows * kColumns
                                                       : kRows * kColumns + kTable * 2;
        std::size_t number = std::size_t(&shard - shards(s).data());
        const auto here = floats_of(stores[s]->job("job")->read(number).body);
        std::copy(here.begin(), here.end(),
                  all.begin() + std::ptrdiff_t(at + shard.first_element()));
      }
    }
    return all;
  }
  void save(engine::Storage& storage, std::int64_t step) {
    engine::Checkpoints checkpoints(storage, "saves", 3, quiet());
    checkpoints.begin(step);
    std::vector<engine::Shard> files;
    for (std::size_t s = 0; s < stores.size(); ++s) {
      files.push_back(
          save_shard(*stores[s], "job", 0, checkpoints, step, int(s), int(stores.size())).file);
    }
    engine::RunState state;
    state.step = step;
    checkpoints.commit(state, files);
  }
  std::int64_t restore(engine::Storage& storage, std::int64_t step, std::uint64_t generation,
                       std::vector<std::string> zero = {}) {
    engine::Checkpoints checkpoints(storage, "saves", 3, quiet());
    std::int64_t version = 0;
    for (const auto& store : stores)
      version = restore_shard(*store, "job", generation, checkpoints, step, zero);
    return version;
  }
  static engine::Log quiet() { return engine::Log("", engine::Log::Level::kError); }

  std::unique_ptr<engine::Ops> ops = engine::host_devices()[0]->ops(DType::kFloat32, {});
  std::vector<std::unique_ptr<ShardStore>> stores;
  std::vector<std::uint64_t> sequences;  // of worker 0, one per server
};

// A restored job, with its optimizer slots, continues with the same bits as an undisturbed one.
TEST(ShardCheckpoint, FromAnyNumberOfServersToAnyOther) {
  for (const std::size_t from : {1, 2, 3}) {
    MemoryStorage storage;
    Cluster first(from);
    first.start();
    for (std::size_t step = 0; step < 5; ++step) first.step(step);
    first.save(storage, 5);
    const std::vector<float> saved = first.weights();
    for (std::size_t step = 5; step < 9; ++step) first.step(step);
    for (const std::size_t to : {1, 2, 3}) {
      Cluster second(to);
      EXPECT_EQ(second.restore(storage, 5, 1, {"parameter_server."}), 5);
      EXPECT_EQ(second.weights(), saved);
      for (std::size_t step = 5; step < 9; ++step) second.step(step);
      EXPECT_EQ(second.weights(), first.weights()) << "from " << from << " to " << to;
    }
  }
}

TEST(ShardCheckpoint, IsReadByThoseWhoKnowNoServers) {
  MemoryStorage storage;
  Cluster cluster(2);
  cluster.start();
  cluster.step(0);
  cluster.save(storage, 1);
  engine::Checkpoints checkpoints(storage, "saves", 3, Cluster::quiet());
  checkpoints.verify(1);
  std::vector<float> w(kRows * kColumns), moment(kRows * kColumns), b(3);
  const auto piece = [](const std::string& name, engine::Shape shape, std::vector<float>& to) {
    return engine::Piece{
        name, shape, DType::kFloat32, {0, to.size()}, reinterpret_cast<std::byte*>(to.data())};
  };
  const engine::Piece pieces[] = {piece("w", {kRows, kColumns}, w),
                                  piece("first_moment/w", {kRows, kColumns}, moment),
                                  piece("b", {3}, b)};
  checkpoints.restore(1, pieces);
  const std::vector<float> weights = cluster.weights();
  EXPECT_TRUE(std::equal(w.begin(), w.end(), weights.begin()));
  EXPECT_TRUE(std::equal(b.begin(), b.end(), weights.end() - 3));
  for (std::size_t i = 0; i < moment.size(); ++i) EXPECT_NEAR(moment[i], 0.1f * value(7, i), 1e-7);
}

// The step of another strategy's checkpoint becomes the version and Adam's step.
TEST(ShardCheckpoint, OfAnotherStrategyGoesOnAtItsStep) {
  MemoryStorage storage;
  engine::Checkpoints checkpoints(storage, "saves", 3, Cluster::quiet());
  std::vector<std::vector<float>> memory;
  std::vector<engine::Piece> pieces;
  for (const auto& [name, shape] : std::vector<std::pair<std::string, engine::Shape>>{
           {"w", {kRows, kColumns}}, {"table", {kTable, 2}}, {"b", {3}}}) {
    for (const std::string slot : {"", "first_moment/", "second_moment/"}) {
      std::vector<float>& values = memory.emplace_back();
      for (std::size_t i = 0; i < shape.elements(); ++i)
        values.push_back(slot.empty() ? 1.0f : 0.25f);
      pieces.push_back({slot + name, shape, DType::kFloat32, {0, values.size()}, nullptr});
    }
  }
  for (std::size_t i = 0; i < pieces.size(); ++i)
    pieces[i].data = reinterpret_cast<std::byte*>(memory[i].data());
  checkpoints.begin(40);
  const engine::Shard file[] = {checkpoints.write_shard(40, 0, 1, pieces)};
  engine::RunState state;
  state.step = 40;
  checkpoints.commit(state, file);

  Cluster cluster(3);
  EXPECT_EQ(cluster.restore(storage, 40, 1), 40);
  EXPECT_EQ(cluster.stores[1]->job("job")->status().workers[0].last, 0u);
  cluster.step(40);
  const std::vector<float> weights = cluster.weights();
  const auto expected = [](double gradient) {
    const double m = 0.9 * 0.25 + 0.1 * gradient, v = 0.999 * 0.25 + 0.001 * gradient * gradient;
    const double mhat = m / (1 - std::pow(0.9, 41)), vhat = v / (1 - std::pow(0.999, 41));
    return 1 - 0.05 * mhat / (std::sqrt(vhat) + 1e-8);
  };
  for (std::size_t i = 0; i < kRows * kColumns; ++i)
    EXPECT_NEAR(weights[i], expected(value(47, i)), 1e-6);
  EXPECT_NEAR(weights[kRows * kColumns], expected(value(47, 0)), 1e-6) << "a row of the table";
  EXPECT_EQ(weights[kRows * kColumns + 2], 1.0f);
}

// If a server dies after step 7 and is restored from the checkpoint of step 5, workers continue to
// count. Pushes before the checkpoint are known; pushes after it are lost and reported as lost.
TEST(ShardCheckpoint, PushesAfterItAreCountedAsLost) {
  MemoryStorage storage;
  Cluster cluster(2);
  cluster.start();
  for (std::size_t step = 0; step < 5; ++step) cluster.step(step);
  const std::uint64_t saved = cluster.sequences[0];
  cluster.save(storage, 5);
  for (std::size_t step = 5; step < 7; ++step) cluster.step(step);
  const std::uint64_t pushed = cluster.sequences[0];
  const std::int64_t version = cluster.stores[0]->job("job")->version();

  Cluster again(2);
  EXPECT_EQ(again.restore(storage, 5, 2), version - 2);
  const auto worker = [&] { return again.stores[0]->job("job")->status().workers[0]; };
  EXPECT_EQ(worker().last, saved);
  EXPECT_EQ(worker().lost, 0u);
  again.sequences[0] = saved - 1;
  PushOrder last;
  last.last = true;
  EXPECT_EQ(again.push(0, last, {}).what, PushOutcome::kRepeated) << "it is in the checkpoint";
  again.sequences[0] = pushed;
  EXPECT_EQ(again.push(0, last, {}).what, PushOutcome::kApplied);
  EXPECT_EQ(worker().lost, pushed - saved);
  again.sequences[0] = pushed - 1;
  EXPECT_EQ(again.push(0, last, {}).what, PushOutcome::kApplied) << "its answer never came";
  EXPECT_EQ(worker().lost, pushed - saved - 1);
}

TEST(ShardCheckpoint, APushOfTheGenerationBeforeIsRefused) {
  MemoryStorage storage;
  Cluster cluster(1);
  cluster.start();
  cluster.save(storage, 3);
  cluster.restore(storage, 3, 2);
  PushOrder order;
  order.generation = 1;
  order.sequence = 1;
  EXPECT_THAT(
      refused([&] { cluster.stores[0]->push("job", order, nullptr, {}); }, Code::kUnavailable),
      HasSubstr("generation 2, not 1"));
}

TEST(ShardCheckpoint, TheSameRestoreTwiceIsOne) {
  MemoryStorage storage;
  Cluster cluster(1);
  cluster.start();
  cluster.step(0);
  cluster.save(storage, 1);
  Cluster again(1);
  again.restore(storage, 1, 2);
  again.sequences = cluster.sequences;
  again.step(1);
  const std::vector<float> weights = again.weights();
  again.restore(storage, 1, 2);
  EXPECT_EQ(again.weights(), weights) << "its first answer was lost: nothing is taken back";
  EXPECT_NE(refused([&] { again.restore(storage, 1, 1); }, Code::kInvalid), "");
  again.restore(storage, 1, 3);
  EXPECT_NE(again.weights(), weights);
}

TEST(ShardCheckpoint, ARestoreThatFailsChangesNothing) {
  MemoryStorage storage;
  Cluster cluster(1);
  cluster.start();
  cluster.step(0);
  cluster.save(storage, 1);
  const std::uint64_t before = cluster.stores[0]->checksum();
  EXPECT_NE(refused([&] { cluster.restore(storage, 2, 2); }, Code::kInvalid), "");
  const std::string path = "saves/step-0000000001/shard-00000-of-00001.safetensors";
  storage.contents(path).resize(100);
  EXPECT_NE(refused([&] { cluster.restore(storage, 1, 2); }, Code::kCorrupt), "");
  EXPECT_EQ(cluster.stores[0]->checksum(), before);
  Cluster empty(1);
  EXPECT_NE(refused([&] { empty.restore(storage, 1, 2); }, Code::kCorrupt), "");
  EXPECT_FALSE(empty.stores[0]->job("job")->ready());
  empty.start();
  EXPECT_TRUE(empty.stores[0]->job("job")->ready());
}

TEST(ShardCheckpoint, SlotsOfAnotherOptimizerMayStartAtZero) {
  MemoryStorage storage;
  Cluster cluster(1);
  cluster.start();
  cluster.step(0);
  cluster.save(storage, 1);
  JobSpec spec = part_of_job(0, 1);
  spec.rule = sgd_rule(0.9);
  ShardStore store(*cluster.ops);
  store.open("job", 1, spec);
  engine::Checkpoints checkpoints(storage, "saves", 3, Cluster::quiet());
  EXPECT_THAT(refused([&] { restore_shard(store, "job", 1, checkpoints, 1, {}); }, Code::kInvalid),
              HasSubstr("momentum/w"));
  const std::vector<std::string> zero{"momentum/"};
  restore_shard(store, "job", 1, checkpoints, 1, zero);
  EXPECT_TRUE(store.job("job")->ready());
}

}  // namespace shard_checkpoint_test
}  // namespace lockstep::test
