// SPDX-License-Identifier: MIT
// A job reports which of its ranks delays the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "collectives/bootstrap/bootstrap.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace step_times_test {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds kDelay{50}, kWork{5};
constexpr int kLate = 2, kRanks = 4;
constexpr std::size_t kBatch = 12, kSteps = 20;

enum class Late { kOneRank, kInTurn };

// Step s has the examples [12 s, 12 s + 12), of which each rank reads three. Rank 2 is late in all
// steps, or each rank in turn for five steps: it sleeps before the first of its examples. With
// ranks late in turn, the other ranks have some work, too.
class LateRows : public Table {
 public:
  explicit LateRows(Late late) : Table(kSteps * kBatch, 20, 5), late_(late) {}
  void read(std::uint64_t index, std::span<float> input, std::span<float> target) const override {
    const std::size_t rank = late_ == Late::kOneRank ? kLate : index / kBatch / 5;
    const bool first = index % (kBatch / kRanks) == 0;
    if (first && index % kBatch / (kBatch / kRanks) == rank) {
      std::this_thread::sleep_for(kDelay);
    } else if (first && late_ == Late::kInTurn) {
      std::this_thread::sleep_for(kWork);
    }
    Table::read(index, input, target);
  }

 private:
  Late late_;
};

engine::History fit(engine::Strategy& strategy, const engine::GraphSpec& graph,
                    const engine::Dataset& data, std::vector<std::string>* warnings,
                    std::vector<double>* waited) {
  engine::TrainerOptions options;
  options.log =
      engine::Log("", engine::Log::Level::kWarning, [&](engine::Log::Level, std::string_view line) {
        if (warnings != nullptr) warnings->emplace_back(line);
      });
  engine::Trainer trainer(strategy, graph, engine::optim::sgd({.rate = 0.01}), options);
  engine::FitOptions fit;
  fit.global_batch = kBatch;
  fit.shuffle = false;
  fit.prefetch_threads = 0;  // each replica reads for itself
  fit.on_step = [&](const engine::StepReport& report) {
    if (waited != nullptr) waited->push_back(report.waited);
  };
  return trainer.fit(data, fit);
}

// The tests retry up to kTries times until the others waited as long as one rank was late. Other
// load on the machine adds to steps or hides waits.
constexpr int kTries = 8;
bool waited_for_the_delay(const engine::History& history) {
  const double delay = std::chrono::duration<double>(kDelay).count();
  return history.times && std::abs(history.times->waited_for_slowest - delay) <= 0.005;
}

// Expects the properties that hold under any load of the machine.
void expect_late(const engine::History& history) {
  ASSERT_TRUE(history.times);
  const engine::StepTimes& times = *history.times;
  EXPECT_EQ(times.slowest, kLate);
  ASSERT_EQ(times.ranks.size(), std::size_t(kRanks));
  for (const engine::RankTimes& rank : times.ranks) EXPECT_EQ(rank.steps, 20);
  const engine::RankTimes& late = times.ranks[kLate];
  EXPECT_GE(late.work, 0.97 * 0.050);
  EXPECT_LE(times.waited_for_slowest, 1.05 * late.step_most);  // medians are accurate to 2 %
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == kLate) continue;
    EXPECT_GT(times.ranks[std::size_t(rank)].waited, late.waited) << rank;
    EXPECT_LT(times.ranks[std::size_t(rank)].work, late.work) << rank;
  }
  EXPECT_THAT(times.describe(), HasSubstr("rank 2, the slowest, computes"));
}

TEST(SlowestRank, OfThreadsIsNamedWithWhatTheOthersWait) {
  std::vector<double> waited;
  engine::History history;
  for (int tries = 0; tries < kTries && !waited_for_the_delay(history); ++tries) {
    waited.clear();
    strategies::Mirrored strategy(replicas(kRanks));
    history = fit(strategy, small_graph({}), LateRows(Late::kOneRank), nullptr, &waited);
    expect_late(history);
  }
  EXPECT_NEAR(history.times->waited_for_slowest, 0.050, 0.005);
  ASSERT_EQ(waited.size(), 20u);
  // The median counts, because in some steps this rank may be delayed itself.
  std::nth_element(waited.begin(), waited.begin() + 10, waited.end());
  EXPECT_GE(waited[10], 0.020);
}

// Returns the history of each process of two hosts.
std::vector<engine::History> between_hosts() {
  const auto bootstraps = collectives::in_memory_bootstrap({0, 1, 0, 1}, std::chrono::seconds(20));
  std::vector<std::thread> processes;
  std::mutex mutex;
  std::vector<engine::History> histories;
  for (const auto& bootstrap : bootstraps) {
    processes.emplace_back([&, b = bootstrap.get()] {
      strategies::CollectiveAllReduce strategy(replicas(1), *b);
      const engine::History history =
          fit(strategy, small_graph({}), LateRows(Late::kOneRank), nullptr, nullptr);
      {
        const std::scoped_lock lock(mutex);
        histories.push_back(history);
      }
      b->finish();
    });
  }
  for (std::thread& process : processes) process.join();
  return histories;
}

TEST(SlowestRank, BetweenHostsIsKnownToAllProcesses) {
  std::vector<engine::History> histories;
  for (int tries = 0; tries < kTries && (tries == 0 || !waited_for_the_delay(histories[0]));
       ++tries)
    histories = between_hosts();
  ASSERT_EQ(histories.size(), std::size_t(kRanks));
  EXPECT_NEAR(histories[0].times->waited_for_slowest, 0.050, 0.005);
  for (const engine::History& history : histories) {
    expect_late(history);
    EXPECT_EQ(history.times->waited_for_slowest, histories[0].times->waited_for_slowest);
  }
}

// Each rank waits in most steps, and in every step one of them waits for no other.
TEST(SlowestRank, ThatIsAnotherInEachStepIsNoCommunication) {
  std::vector<std::string> warnings;
  strategies::Mirrored together(replicas(kRanks));
  const engine::History history =
      fit(together, small_graph({}), LateRows(Late::kInTurn), &warnings, nullptr);
  for (const engine::RankTimes& rank : history.times->ranks) EXPECT_GE(rank.waited, 0.020);
  EXPECT_GT(history.times->late_in_turn, history.times->exposed);
  EXPECT_THAT(warnings, testing::IsEmpty());
}

// Returns a graph that hardly computes, but communicates with the other hosts many times per step.
engine::GraphSpec talking_graph() {
  engine::GraphSpec graph("talking", {20});
  graph.then("dense", engine::dense(5));
  for (int i = 0; i < 40; ++i) graph.then("centre" + std::to_string(i), centre());
  graph.set_loss(engine::mean_squared_error());
  return graph;
}

TEST(Communication, ThatTakesLongerThanComputingIsSaidOnce) {
  const auto bootstraps = collectives::in_memory_bootstrap({0, 1, 2, 3}, std::chrono::seconds(20));
  std::vector<std::string> warnings;
  std::vector<engine::History> histories(bootstraps.size());
  std::vector<std::thread> processes;
  for (std::size_t i = 0; i < bootstraps.size(); ++i) {
    processes.emplace_back([&, i] {
      strategies::CollectiveAllReduce strategy(replicas(1), *bootstraps[i]);
      histories[i] = fit(strategy, talking_graph(), Table(2 * kSteps * kBatch, 20, 5),
                         i == 0 ? &warnings : nullptr, nullptr);
      bootstraps[i]->finish();
    });
  }
  for (std::thread& process : processes) process.join();
  const engine::History& history = histories[0];
  EXPECT_GT(history.times->exposed, 0);
  EXPECT_GT(history.times->messages, 0);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("communication takes longer than computation ("));
  RecordProperty("times", history.times->describe());
}

TEST(Communication, OfOneRankIsNone) {
  std::vector<std::string> warnings;
  strategies::Mirrored alone(replicas(1));
  EXPECT_EQ(fit(alone, small_graph({}), LateRows(Late::kInTurn), &warnings, nullptr).times->exposed,
            0);
  EXPECT_THAT(warnings, testing::IsEmpty());
}

}  // namespace step_times_test
}  // namespace lockstep::test
