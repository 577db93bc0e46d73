// SPDX-License-Identifier: MIT
// The table of algorithms describes each algorithm correctly.
#include "collectives/algorithms/registry.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "collectives/algorithms/algorithms.h"
#include "collectives/check/verifier.h"
#include "test/collectives/job.h"

namespace lockstep::test {
namespace registry_test {

using collectives::Algorithm;
using collectives::all_reduce_algorithms;
using collectives::find_algorithm;
using collectives::Goal;
using collectives::Lane;
using collectives::Operand;
using collectives::Step;
using engine::kBlock;

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const engine::Error& error) {
    return error.code() == engine::Code::kInvalid ? error.what() : "another code";
  }
  return {};
}

Request request(const std::vector<int>& host, std::size_t count) {
  Request request;
  request.name = "p";
  request.subject = {0, count};
  request.host = host;
  return request;
}

TEST(Registry, FindsEachByTheNameThatItsPlansCarry) {
  std::set<std::string_view> names;
  for (const Algorithm& algorithm : all_reduce_algorithms()) {
    EXPECT_TRUE(names.insert(algorithm.name).second) << algorithm.name;
    EXPECT_EQ(&find_algorithm(algorithm.name), &algorithm);
    EXPECT_EQ(algorithm.make(request({0, 0}, 10)).algorithm, algorithm.name);
  }
}

TEST(Registry, NamesAllThatThereAre) {
  std::vector<std::string_view> names;
  for (const Algorithm& algorithm : all_reduce_algorithms()) names.push_back(algorithm.name);
  EXPECT_EQ(error_of([] { find_algorithm("none_of_these"); }),
            fmt::format("unknown all-reduce algorithm 'none_of_these'; known: {}",
                        fmt::join(names, ", ")));
  const Algorithm own{"own", false, find_algorithm("ring").refusal, collectives::ring_all_reduce,
                      collectives::ring_scratch};
  const std::vector<Algorithm> others{own};
  EXPECT_EQ(&find_algorithm("own", others), &others[0]);
  EXPECT_EQ(error_of([&] { find_algorithm("ring", others); }),
            "unknown all-reduce algorithm 'ring'; known: own");
}

// An algorithm refuses exactly the hosts for which `make` throws, with the same reason.
TEST(Registry, KnowsWhichHostsAnAlgorithmServes) {
  for (const std::string& layout : kLayouts)
    for (const Algorithm& algorithm : all_reduce_algorithms()) {
      const std::vector<int> host = hosts(layout, 5);
      const std::string refusal = algorithm.refusal(host);
      const std::string thrown = error_of([&] { algorithm.make(request(host, 100)); });
      EXPECT_EQ(refusal.empty(), thrown.empty()) << algorithm.name << " " << layout;
      EXPECT_NE(thrown.find(refusal), std::string::npos) << thrown;
    }
  EXPECT_EQ(find_algorithm("direct").refusal({0, 0, 1}),
            "needs all ranks on one host, since it reads their memory, but rank 0 is on host 0 and "
            "rank 2 on host 1");
}

TEST(Registry, KnowsHowMuchScratchAPlanUses) {
  for (const std::string& layout : kLayouts)
    for (const Algorithm& algorithm : all_reduce_algorithms())
      for (int ranks = 1; ranks <= 9; ++ranks)
        for (const std::size_t count : {std::size_t(0), std::size_t(1), 3 * kBlock, 40 * kBlock}) {
          Request r = request(hosts(layout, ranks), count);
          if (!algorithm.refusal(r.host).empty()) continue;
          r.scratch = 1000, r.chunk_bytes = 4096;
          const Plan plan = algorithm.make(r);
          std::size_t end = r.scratch;
          for (const auto& lanes : plan.lanes)
            for (const Lane& lane : lanes)
              for (const Step& step : lane)
                for (const auto* operands : {&step.from, &step.to})
                  for (const Operand& o : *operands) {
                    if (o.space != Space::kScratch) continue;
                    EXPECT_GE(o.offset, r.scratch);
                    end = std::max(end, o.offset + step.count + plan.alternate);
                  }
          EXPECT_LE(end, r.scratch + algorithm.scratch(r)) << algorithm.name << " " << layout;
          // A plan on one host asks for no scratch if it uses none.
          if (end == r.scratch && layout == "one") {
            EXPECT_EQ(algorithm.scratch(r), 0u);
          }
        }
}

// Without rotation, `same` names another algorithm exactly if both plans have the same steps. With
// rotation it may miss equal plans, but a plan that it names is equal.
TEST(Registry, KnowsWhichPlansAreTheSame) {
  std::vector<std::vector<int>> layouts{{0, 1, 1, 2, 2}, {0, 0, 1, 1, 1}};
  for (const std::string& layout : kLayouts)
    for (int ranks = 1; ranks <= 9; ++ranks) layouts.push_back(hosts(layout, ranks));
  for (const std::vector<int>& host : layouts)
    for (const std::size_t count : {64 * kBlock, 64 * kBlock + 1, 1000 * kBlock})
      for (const int rotation : {0, 1}) {
        Request r = request(host, count);
        r.rotation = rotation, r.scratch = 1000;
        std::map<std::string_view, decltype(Plan::lanes)> plans;
        for (const Algorithm& algorithm : all_reduce_algorithms()) {
          if (!algorithm.refusal(host).empty()) continue;
          std::string_view same = algorithm.same == nullptr ? "" : algorithm.same(r);
          const auto lanes = algorithm.make(r).lanes;
          for (const auto& [name, other] : plans)
            EXPECT_TRUE((lanes == other) == (name == same) || (rotation > 0 && name != same))
                << "plans of " << host.size() << " ranks, " << count
                << " elements: " << algorithm.name << "'s is " << (lanes == other ? "" : "not ")
                << name << "'s, but Algorithm::same returns '" << same << "'";
          if (same.empty()) plans[algorithm.name] = lanes;
          EXPECT_TRUE(same.empty() || plans.contains(same)) << algorithm.name << " " << same;
        }
      }
}

// For few bytes, one_shot has one wait instead of two and the bits of direct. For many bytes it is
// direct.
TEST(Registry, OneShotIsDirectInOneWaitForFewBytes) {
  const Algorithm& algorithm = find_algorithm("one_shot");
  for (const int ranks : {2, 3, 5}) {
    for (const std::size_t count : {std::size_t(1), 64 * kBlock}) {  // up to 256 KiB
      const Plan plan = algorithm.make(request(hosts("one", ranks), count));
      EXPECT_GT(plan.alternate, 0u);
      for (const auto& lanes : plan.lanes)
        EXPECT_EQ(std::count_if(lanes[0].begin(), lanes[0].end(),
                                [](const Step& step) { return !step.ranks.empty(); }),
                  1);
    }
    Plan large = algorithm.make(request(hosts("one", ranks), 64 * kBlock + 1));
    EXPECT_EQ(algorithm.scratch(request(hosts("one", ranks), 64 * kBlock + 1)), 0u);
    EXPECT_EQ(large.algorithm, "one_shot");
    large.algorithm = "direct";
    EXPECT_EQ(print(large),
              print(find_algorithm("direct").make(request(hosts("one", ranks), 64 * kBlock + 1))));
  }
  Request squares = request({0, 0}, 10);
  squares.squares = true;
  EXPECT_EQ(error_of([&] { algorithm.make(squares); }),
            "p: one_shot leaves no squares; add local_squares after it");
}

// No synchronization is redundant: a plan is wrong without any one rank of any await.
TEST(Registry, PlansAwaitNobodyWithoutNeed) {
  for (const Algorithm& algorithm : all_reduce_algorithms())
    for (const std::string& layout : kLayouts)
      for (const int ranks : {2, 3, 4, 6}) {
        Request r = request(hosts(layout, ranks), std::size_t(ranks) * 10 * kBlock);
        if (!algorithm.refusal(r.host).empty()) continue;
        r.chunk_bytes = 4096;
        Plan plan = algorithm.make(r);
        for (std::size_t rank = 0; rank < plan.lanes.size(); ++rank)
          for (std::size_t lane = 0; lane < plan.lanes[rank].size(); ++lane)
            for (std::size_t step = 0; step < plan.lanes[rank][lane].size(); ++step)
              for (std::size_t i = 0; i < plan.lanes[rank][lane][step].ranks.size(); ++i) {
                auto& awaited = plan.lanes[rank][lane][step].ranks;
                if (awaited[i] == int(rank)) continue;
                const std::vector<int> all = awaited;
                awaited.erase(awaited.begin() + std::ptrdiff_t(i));
                EXPECT_FALSE(verify(plan, Goal::kSumEverywhere).empty())
                    << algorithm.name << ", hosts " << layout << ", " << ranks << " ranks: rank "
                    << rank << ", lane " << lane << ", step " << step << " awaits rank " << all[i]
                    << " without need: the plan is right without it";
                awaited = all;
              }
        EXPECT_EQ(verify(plan, Goal::kSumEverywhere), "");
      }
}

}  // namespace registry_test
}  // namespace lockstep::test
