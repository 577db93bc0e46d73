// SPDX-License-Identifier: MIT
// Every living rank names a silent rank and no other, for every algorithm and whichever ranks wait
// for each other. This includes ranks whose neighbors in the plan merely wait themselves.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "collectives/algorithms/registry.h"
#include "engine/base/quantity.h"
#include "test/collectives/job.h"
#include "test/collectives/tcp/tcp_ranks.h"

namespace lockstep::test {
namespace silent_rank_test {

using engine::Code;
using engine::kBlock;
using std::chrono::milliseconds;

constexpr int kRanks = 4;
constexpr std::size_t kLength = 3 * kBlock + 5;
constexpr std::size_t kElements = 4 * kLength;  // gradients, or scratch
constexpr milliseconds kDeadline{200};
constexpr std::chrono::seconds kLimit{2};  // from the deadline until all have been told
// A rank that does not run for the time of an answer is silent. If a thread that only sleeps did
// not run for this long, the machine was too busy, and the test is repeated.
constexpr milliseconds kKeptWaiting{50};
constexpr int kTries = 5;

enum class Silence { kNeverComes, kStopsInTheMiddle };

struct Case {
  std::string algorithm, layout;
  Silence silence;
  friend void PrintTo(const Case& c, std::ostream* out) {
    *out << c.algorithm << " " << c.layout << (c.silence == Silence::kNeverComes ? " 0" : " 1");
  }
};

Request request_of(const std::string& layout) {
  Request request;
  request.name = "bucket 7 (dense.weight): sum";
  request.subject = {0, kLength};
  request.host = hosts(layout, kRanks);
  request.chunk_bytes = kBlock * sizeof(float);
  return request;
}

struct Told {
  std::exception_ptr error;
  engine::Clock::time_point when{};
};

// Returns what each rank is told if `silent` is silent: from the beginning, or after it has taken
// part once and begun again. The others would run three times.
std::vector<Told> told_by(const Case& c, int silent) {
  JobOptions options;
  options.executor.deadline = kDeadline;
  if (c.layout != "one") options.connect = [](int n) { return collectives::connect_all(n); };
  const Plan plan = collectives::find_algorithm(c.algorithm).make(request_of(c.layout));
  Job job({{plan, {}, false}}, kElements, std::move(options));
  std::vector<Told> told{std::size_t(kRanks)};
  const auto errors = job.run([&](int rank) {
    Executor& executor = job.executor(rank);
    if (rank == silent) {
      if (c.silence == Silence::kNeverComes) return;
      run_and_tell(executor, {0});
      executor.start(0, nullptr);
      for (int looks = 0; looks < 2; ++looks) executor.progress(1);
      return;
    }
    // The ranks start one after the other, so that the first deadline ends before the others.
    if (c.silence == Silence::kNeverComes) std::this_thread::sleep_for(rank * kDeadline / 5);
    try {
      for (int times = 0; times < 3; ++times) run_and_tell(executor, {0});
    } catch (const std::exception&) {
      told[std::size_t(rank)].when = engine::Clock::now();
      throw;
    }
  });
  for (std::size_t rank = 0; rank < errors.size(); ++rank) told[rank].error = errors[rank];
  return told;
}

struct Tried {
  std::vector<std::vector<Told>> told{std::size_t(kRanks)};  // [silent rank][told rank]
  engine::Clock::time_point begin = engine::Clock::now();
  std::chrono::nanoseconds kept_waiting{0};  // maximum of one thread
};

// Runs one job per silent rank, all at once, since they mostly wait.
Tried run_all(const Case& c) {
  Tried run;
  std::jthread watch([&run](const std::stop_token& over) {
    while (!over.stop_requested()) {
      const auto begin = engine::Clock::now();
      std::this_thread::sleep_for(milliseconds(1));
      run.kept_waiting =
          std::max<std::chrono::nanoseconds>(run.kept_waiting, engine::Clock::now() - begin);
    }
  });
  {
    std::vector<std::jthread> jobs;
    for (int silent = 0; silent < kRanks; ++silent)
      jobs.emplace_back([&, silent] { run.told[std::size_t(silent)] = told_by(c, silent); });
  }
  watch.request_stop();
  watch.join();
  return run;
}

class SilentRank : public testing::TestWithParam<Case> {};

TEST_P(SilentRank, IsNamedByAllOthersAndNobodyElseIs) {
  const Case& c = GetParam();
  Tried run = run_all(c);
  for (int tries = 1; run.kept_waiting > kKeptWaiting && tries < kTries; ++tries) run = run_all(c);
  for (int silent = 0; silent < kRanks; ++silent) {
    for (int rank = 0; rank < kRanks; ++rank) {
      const Told& one = run.told[std::size_t(silent)][std::size_t(rank)];
      if (rank == silent) {
        EXPECT_FALSE(one.error) << text(one.error);
        continue;
      }
      const std::string where = fmt::format("rank {} where {} is silent", rank, silent);
      const std::string said = text(one.error);
      ASSERT_TRUE(one.error) << where;
      EXPECT_THAT(
          said, testing::HasSubstr(fmt::format("bucket 7 (dense.weight): sum ({}, {})", c.algorithm,
                                               engine::bytes_text(kLength * sizeof(float)))))
          << where;
      EXPECT_THAT(said, testing::StartsWith(fmt::format("rank {} is missing: ", silent))) << where;
      const std::size_t at = said.find("; arrived: ");
      ASSERT_NE(at, std::string::npos) << where << ": " << said;
      EXPECT_EQ(said.substr(at).find(std::to_string(silent)), std::string::npos)
          << where << ": " << said;
      EXPECT_LE(one.when - run.begin, kDeadline + kLimit) << where;
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const collectives::Algorithm& algorithm : collectives::all_reduce_algorithms())
    for (const char* layout : {"one", "equal", "apart"})
      for (const Silence silence : {Silence::kNeverComes, Silence::kStopsInTheMiddle}) {
        const Request request = request_of(layout);
        if (!algorithm.refusal(request.host).empty()) continue;
        engine::invariant(algorithm.scratch(request) <= kElements, "more scratch than there is");
        all.push_back({std::string(algorithm.name), layout, silence});
      }
  return all;
}

std::string named(const Case& c) {
  std::string text =
      fmt::format("{}_{}_{}", c.algorithm, c.layout,
                  c.silence == Silence::kNeverComes ? "never_comes" : "stops_in_the_middle");
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

INSTANTIATE_TEST_SUITE_P(Algorithms, SilentRank, testing::ValuesIn(cases()),
                         [](const auto& one) { return named(one.param); });

}  // namespace silent_rank_test
}  // namespace lockstep::test
