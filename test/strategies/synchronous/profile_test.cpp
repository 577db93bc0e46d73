// SPDX-License-Identifier: MIT
// The trace of a whole job, over threads, processes and hosts, and the table of the placement.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "collectives/bootstrap/bootstrap.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace profile_test {

using nlohmann::json;

struct Span {
  std::string category, name;
  int rank = 0, lane = 0;
  std::int64_t step = 0, begin = 0, end = 0;  // nanoseconds
  std::size_t bytes = 0;
};

std::vector<Span> spans_of(const std::string& trace) {
  std::vector<Span> spans;
  const json document = json::parse(trace);
  for (const json& event : document.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const auto begin = std::llround(event.at("ts").get<double>() * 1000);
    spans.push_back({event.at("cat"), event.at("name"), event.at("pid"), event.at("tid"),
                     event.at("args").at("step"), begin,
                     begin + std::llround(event.at("dur").get<double>() * 1000),
                     event.at("args").value("bytes", std::size_t(0))});
  }
  return spans;
}

// Expects spans of each lane in file order that nest: each lies inside the open span or behind it.
void expect_nested(const std::vector<Span>& spans) {
  std::map<std::pair<int, int>, std::vector<Span>> open;
  for (const Span& span : spans) {
    auto& stack = open[{span.rank, span.lane}];
    while (!stack.empty() && stack.back().end <= span.begin) stack.pop_back();
    if (stack.empty()) {
      stack.push_back(span);
      continue;
    }
    EXPECT_EQ(span.lane, 0) << "communication overlaps in a lane: " << span.name;
    EXPECT_LE(span.end, stack.back().end)
        << span.name << " of rank " << span.rank << " reaches out of " << stack.back().name;
    stack.push_back(span);
  }
}

void expect_whole(const std::string& trace, std::int64_t first, std::int64_t steps, int parts,
                  const std::string& way) {
  SCOPED_TRACE(way);
  const std::vector<Span> spans = spans_of(trace);
  expect_nested(spans);
  std::map<std::tuple<int, std::int64_t, std::string, std::string>, int> seen;
  std::set<std::pair<int, std::int64_t>> rank_steps;
  std::map<std::tuple<int, std::int64_t>, std::size_t> bytes;
  std::int64_t earliest = INT64_MAX;
  for (const Span& span : spans) {
    ++seen[{span.rank, span.step, span.category, span.name}];
    rank_steps.insert({span.rank, span.step});
    earliest = std::min(earliest, span.begin);
    if (span.category == "bucket" && span.name.find("update") != std::string::npos) {
      bytes[{span.rank, span.step}] += span.bytes;
    }
  }
  EXPECT_EQ(earliest, 0);
  EXPECT_EQ(rank_steps.size(), std::size_t(4 * steps));
  // In one step each replica has these spans and parameters of small_graph.
  const std::size_t parameters = std::size_t(20 * 64 + 64 + 64 * 32 + 32 + 32 * 5 + 5);
  for (int rank = 0; rank < 4; ++rank) {
    for (std::int64_t step = first + 1; step <= first + steps; ++step) {
      auto count = [&](const char* category, const char* name) {
        return seen[{rank, step, category, name}];
      };
      for (const char* layer : {"dense1", "dense2", "tanh", "dense3"}) {
        EXPECT_EQ(count("forward", layer), parts) << rank << " " << step << " " << layer;
        EXPECT_EQ(count("backward", layer), parts) << rank << " " << step << " " << layer;
      }
      EXPECT_EQ(count("input", "input"), parts);
      EXPECT_EQ(count("loss", "loss"), parts);
      EXPECT_EQ(count("step", "step"), 1);
      EXPECT_EQ(count("strategy", "finish"), 1);
      EXPECT_EQ(count("strategy", "report"), 1);
      EXPECT_EQ(count("exchange", "metrics of a step"), 1);
      // The buckets' updates cover all parameters, and possibly some padding between them.
      const std::size_t updated = bytes[{rank, step}] / sizeof(double);
      EXPECT_GE(updated, parameters) << rank << " " << step;
      EXPECT_LT(updated, parameters + 6 * 16);
    }
  }
}

// Returns whether, on some rank, a bucket was in flight while backward of a layer ran.
bool overlap_is_seen(const std::string& trace) {
  const std::vector<Span> spans = spans_of(trace);
  for (const Span& bucket : spans) {
    if (bucket.category != "bucket") continue;
    for (const Span& layer : spans) {
      if (layer.category == "backward" && layer.rank == bucket.rank && layer.begin > bucket.begin &&
          layer.begin < bucket.end) {
        return true;
      }
    }
  }
  return false;
}

TEST(ProfileOfAJob, HasEveryLayerBucketAndCallOfEveryRankInEveryStep) {
  Job job;
  job.steps = 19;
  job.profile_steps = 6;
  const std::string mirrored = train_mirrored(job, replicas(4)).trace;
  expect_whole(mirrored, 10, 6, 1, "threads");
  EXPECT_TRUE(overlap_is_seen(mirrored));
  expect_whole(train_collective(job, replicas(2), {0, 0}).trace, 10, 6, 1, "processes");
  expect_whole(train_collective(job, replicas(2), {0, 1}).trace, 10, 6, 1, "hosts");
  strategies::SynchronousOptions helped = replicas(4);
  helped.communication_thread = true;
  expect_whole(train_mirrored(job, helped).trace, 10, 6, 1, "communication threads");
  job.accumulate = 2;
  job.steps = 5;  // fewer than requested
  expect_whole(train_mirrored(job, replicas(4)).trace, 0, 5, 2, "micro-batches");
}

TEST(ProfileOfAJob, WithoutOverlapNoBucketRunsBesideBackward) {
  Job job;
  job.steps = 8;
  job.profile_steps = 8;
  strategies::SynchronousOptions options = replicas(4);
  options.step.overlap = false;
  const std::string trace = train_mirrored(job, options).trace;
  expect_whole(trace, 0, 8, 1, "no overlap");
  EXPECT_FALSE(overlap_is_seen(trace));
}

TEST(ProfileOfAJob, ChangesNoBits) {
  Job job, recorded;
  recorded.profile_steps = 15;
  EXPECT_EQ(train_mirrored(job, replicas(3)).weights,
            train_mirrored(recorded, replicas(3)).weights);
}

TEST(Collect, TextsOfAnyLengthReachTheChiefAndNobodyElse) {
  const std::vector<std::size_t> lengths{0, 3'000'000, 1};
  const auto bootstraps = collectives::in_memory_bootstrap({0, 1, 1}, std::chrono::seconds(20));
  std::vector<std::vector<std::string>> seen(3);
  std::vector<std::thread> processes;
  for (std::size_t p = 0; p < 3; ++p) {
    processes.emplace_back([&, p] {
      strategies::CollectiveAllReduce strategy(replicas(1), *bootstraps[p]);
      seen[p] = strategy.collect(std::string(lengths[p], char('a' + p)), "a test");
      bootstraps[p]->finish();
    });
  }
  for (std::thread& process : processes) process.join();
  EXPECT_EQ(seen[0], (std::vector<std::string>{"", std::string(3'000'000, 'b'), "c"}));
  EXPECT_TRUE(seen[1].empty() && seen[2].empty());
}

TEST(Placement, IsThisTableForThreeLayers) {
  strategies::SynchronousOptions options = replicas(2);
  options.step.dtype = engine::DType::kFloat64;
  strategies::Mirrored strategy(options);
  EXPECT_THROW(strategy.placement(), engine::Error);  // there is no model yet
  engine::GraphSpec graph = small_graph({});
  graph.freeze("dense1.bias");
  strategy.open(graph, engine::optim::sgd({.momentum = 0.9}).rule, {11, 1, 1, {}, {}});
  const std::string table = strategy.placement();
  EXPECT_EQ(table, R"(variable       shape  bytes  bucket  device
dense3.weight  5x32    1280       0  reference:0 of 2 replicas
dense3.bias    5         40       0  reference:0 of 2 replicas
dense2.weight  32x64  16384     0-2  reference:0 of 2 replicas
dense2.bias    32       256       2  reference:0 of 2 replicas
dense1.weight  64x20  10240     2-3  reference:0 of 2 replicas
dense1.bias    64       512       -  reference:0 of 2 replicas
all                   28712
optimizer state: each replica keeps that of the slices that it updates)");
  strategy.open(graph, engine::optim::sgd({.momentum = 0.9}).rule, {11, 1, 1, {}, {}});
  EXPECT_EQ(strategy.placement(), table);
}

}  // namespace profile_test
}  // namespace lockstep::test
