// SPDX-License-Identifier: MIT
#include "collectives/cost/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "collectives/algorithms/steps.h"
#include "collectives/topology/example_topologies.h"
#include "engine/base/error.h"

namespace lockstep::collectives {
namespace planner_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;

constexpr std::size_t kKiB = 1024, kMiB = kKiB * kKiB;

std::string anywhere(const std::vector<int>&) {
  return {};
}
std::string nowhere(const std::vector<int>&) {
  return "is for nobody";
}
std::size_t no_scratch(const Request&) {
  return 0;
}
// Returns a plan that does nothing, and so costs nothing.
Plan nothing(const Request& request) {
  return empty_plan(request, "nothing", 1);
}
// Returns a plan that waits for an arrival that never comes.
Plan forever(const Request& request) {
  Plan plan = empty_plan(request, "forever", 1);
  plan.lanes[0][0] = {await({0}, 1)};
  return plan;
}

std::vector<Algorithm> with(Algorithm dummy) {
  std::vector<Algorithm> all(all_reduce_algorithms().begin(), all_reduce_algorithms().end());
  all.push_back(dummy);
  return all;
}

std::string reason_of(const auto& body) {
  try {
    body();
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kInvalid);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Planner, AnAlgorithmThatCostsNothingIsChosenUntilItIsUnsupported) {
  const Topology topology = example_topology("4x4");
  const std::vector<std::size_t> sizes{4 * kKiB, kMiB};
  const auto free = with({"nothing", false, anywhere, nothing, no_scratch});
  for (const Choice& choice : plan_all_reduce(topology, free, {}, sizes).table()) {
    EXPECT_EQ(choice.algorithm, "nothing");
    EXPECT_EQ(choice.seconds, 0);
  }
  const auto unsupported = with({"nothing", false, nowhere, nothing, no_scratch});
  const Choices choices = plan_all_reduce(topology, unsupported, {}, sizes);
  for (const Choice& choice : choices.table()) {
    EXPECT_NE(choice.algorithm, "nothing");
    EXPECT_NE(choice.runner_up, "nothing");
  }
  std::map<std::string, std::string> refused;
  for (const auto& [algorithm, why] : choices.refused()) refused[algorithm] = why;
  EXPECT_THAT(refused, testing::IsSupersetOf({Key("direct"), Key("one_shot")}));
  EXPECT_EQ(refused["nothing"], "is for nobody");
}

TEST(Planner, TheChoiceIsTheCheapestAndTheRunnerUpTheNext) {
  for (const char* name : {"1x4", "1x8", "3x1", "4x4"}) {
    const Choices choices =
        plan_all_reduce(example_topology(name), all_reduce_algorithms(), {}, planned_sizes());
    const std::vector<Choice> table = choices.table();
    ASSERT_EQ(table.size(), 21u);
    for (std::size_t i = 0; i < table.size(); ++i) {
      std::multiset<double> seconds;  // of different plans
      for (std::size_t a = 0; a < choices.algorithms().size(); ++a)
        if (choices.same(i, a).empty()) seconds.insert(choices.price(i, a).seconds);
      EXPECT_LE(table[i].seconds, *seconds.begin() * 1.002) << name << " " << table[i].bytes;
      EXPECT_LE(table[i].runner_up_seconds, *std::next(seconds.begin()) * 1.002);
      EXPECT_GE(table[i].runner_up_seconds, *seconds.begin());
      EXPECT_NE(table[i].runner_up, table[i].algorithm);
      EXPECT_FALSE(table[i].reason.empty());
    }
  }
}

// The choice is also the cheapest on random clusters, and the same for the topology that other
// ranks receive.
TEST(Planner, TheChoiceIsTheCheapestWhateverTheTopology) {
  std::mt19937 random(71);
  const auto between = [&](double least, double most) {  // uniform over the orders of magnitude
    return least * std::pow(most / least, std::uniform_real_distribution<>()(random));
  };
  const auto up_to = [&](int most) { return std::uniform_int_distribution<>(1, most)(random); };
  for (int trial = 0; trial < 40; ++trial) {
    HostCosts costs;
    costs.signal = between(1e-7, 1e-5);
    costs.block = between(1e-9, 1e-6);
    const double core = between(1e9, 1e11);
    costs.passes = {{0, core, core * up_to(8)}};
    const WireCosts wire{.latency = between(1e-6, 1e-3),
                         .bandwidth = between(1e7, 1e11),
                         .processor = between(1e-12, 1e-9),
                         .message = between(1e-7, 1e-5)};
    const Topology topology = equal_hosts(up_to(4), up_to(4), costs, wire, up_to(4));
    const std::vector<std::size_t> sizes{256, 4 * kKiB, 256 * kKiB, 4 * kMiB};
    const Choices choices = plan_all_reduce(topology, all_reduce_algorithms(), {}, sizes);
    for (std::size_t i = 0; i < sizes.size(); ++i)
      for (std::size_t a = 0; a < choices.algorithms().size(); ++a)
        EXPECT_LE(choices.choose(sizes[i]).seconds, 1.002 * choices.price(i, a).seconds)
            << trial << ": " << choices.algorithms()[a] << " at " << sizes[i];
    const Topology sent = topology_from_json(to_json(topology));
    EXPECT_EQ(plan_all_reduce(sent, all_reduce_algorithms(), {}, sizes).hash(), choices.hash());
  }
}

TEST(Planner, OfAClusterTheFirstRanksAreAClusterToo) {
  const Topology all = example_topology("4x4"), few = all.first_ranks(6);
  EXPECT_EQ(few.host_of_rank(), (std::vector<int>{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(few.hosts.size(), 2u);
  EXPECT_EQ(few.processes.size(), 6u);
  EXPECT_EQ(few.hosts[0], all.hosts[0]);
  ASSERT_EQ(few.hosts[1].costs.links.size(), 1u);  // between the two remaining ranks
  EXPECT_EQ(few.hosts[1].costs.links[0], all.hosts[1].costs.links[0]);
  EXPECT_EQ(topology_from_json(to_json(few)), few);
  EXPECT_EQ(all.first_ranks(16), all);
  Topology threads = equal_hosts(1, 1, {}, {});  // three replicas of one process
  threads.processes[0].replicas = 3;
  threads.ranks.resize(3, threads.ranks[0]);
  EXPECT_EQ(threads.first_ranks(2).processes[0].replicas, 2);
  EXPECT_EQ(threads.first_ranks(2).ranks.size(), 2u);
}

TEST(Planner, BetweenSizesThePricesGoInAStraightLine) {
  const Choices choices = plan_all_reduce(example_topology("3x1"), all_reduce_algorithms(), {},
                                          {kMiB, 2 * kMiB, 4 * kMiB});
  const Choice low = choices.choose(2 * kMiB), high = choices.choose(4 * kMiB);
  if (low.algorithm == high.algorithm) {
    EXPECT_NEAR(choices.choose(3 * kMiB).seconds, (low.seconds + high.seconds) / 2, 1e-9);
    EXPECT_NEAR(choices.choose(6 * kMiB).seconds, 2 * high.seconds - low.seconds, 1e-9);
  }
  EXPECT_EQ(choices.choose(1).seconds, choices.choose(kMiB).seconds);
  EXPECT_EQ(choices.choose(1).bytes, 1u);
}

// The runner-up always has another plan than the choice, also between the priced sizes.
TEST(Planner, WhatIsNextHasAnotherPlan) {
  const auto plan = [](const Topology& topology, const std::string& name, std::size_t bytes) {
    return find_algorithm(name).make(priced_request(topology, bytes)).lanes;
  };
  for (const char* name : {"1x4", "1x8", "3x1", "4x4", "2x3"}) {
    const Topology topology = example_topology(name);
    const std::vector<std::size_t> sizes{kKiB, 256 * kKiB, 512 * kKiB, 16 * kMiB};
    const Choices choices = plan_all_reduce(topology, all_reduce_algorithms(), {}, sizes);
    for (const std::size_t bytes : {kKiB, 256 * kKiB, 300 * kKiB, 512 * kKiB, 16 * kMiB}) {
      const Choice choice = choices.choose(bytes);
      EXPECT_NE(plan(topology, choice.algorithm, bytes), plan(topology, choice.runner_up, bytes))
          << name << " " << bytes << ": " << choice.algorithm << ", " << choice.runner_up;
      EXPECT_THAT(choice.reason, testing::Not(HasSubstr("hierarchical takes as long"))) << name;
    }
    for (std::size_t i = 0; i < sizes.size(); ++i)
      for (std::size_t a = 0; a < choices.algorithms().size(); ++a)
        if (const std::string same = choices.same(i, a); !same.empty()) {
          EXPECT_EQ(plan(topology, choices.algorithms()[a], sizes[i]),
                    plan(topology, same, sizes[i]));
        }
  }
  const Choices asked = plan_all_reduce(example_topology("1x4"), all_reduce_algorithms(),
                                        parse_size_rules("hierarchical"), {256 * kKiB, 512 * kKiB});
  EXPECT_EQ(asked.choose(256 * kKiB).algorithm, "hierarchical");
  EXPECT_EQ(asked.choose(256 * kKiB).reason, "it was asked for");
  EXPECT_EQ(asked.choose(256 * kKiB).runner_up, "halving_doubling");
}

TEST(Planner, RulesAreObeyedOrRefusedWithAReason) {
  const Topology host = example_topology("1x4"), hosts = example_topology("3x1");
  const auto plan = [](const Topology& topology, const char* rules) {
    return plan_all_reduce(topology, all_reduce_algorithms(), parse_size_rules(rules),
                           {4 * kKiB, 64 * kKiB, kMiB, 4 * kMiB});
  };
  const Choices choices = plan(host, "ring:..64k,halving_doubling:2m..");
  EXPECT_EQ(choices.choose(4 * kKiB).algorithm, "ring");
  EXPECT_TRUE(choices.choose(4 * kKiB).asked);
  EXPECT_THAT(choices.choose(4 * kKiB).reason, HasSubstr("it was asked for; one_shot would take"));
  EXPECT_EQ(choices.choose(64 * kKiB - 1).algorithm, "ring");
  EXPECT_EQ(choices.choose(64 * kKiB).algorithm, "direct");
  EXPECT_FALSE(choices.choose(kMiB).asked);
  EXPECT_EQ(choices.choose(2 * kMiB).algorithm, "halving_doubling");
  EXPECT_NE(choices.hash(), plan(host, "").hash());
  EXPECT_THAT(
      reason_of([&] { plan(hosts, "direct:..64k"); }),
      HasSubstr("algorithm direct was asked for and cannot be: it needs all ranks on one host"));
  EXPECT_THAT(
      reason_of([&] { plan(hosts, "rinq"); }),
      HasSubstr(
          "unknown all-reduce algorithm 'rinq'; did you mean ring? known: direct, one_shot, ring"));
}

// Runs the planner on processes that divide the work among themselves.
class Divided {
 public:
  Divided(int processes, const Topology& topology, std::span<const Algorithm> algorithms,
          const std::vector<std::size_t>& sizes)
      : errors(std::size_t(processes)), choices(errors.size()) {
    const auto views =
        in_memory_bootstrap(std::vector<int>(errors.size(), 0), std::chrono::seconds(60));
    std::vector<std::jthread> threads;
    for (std::size_t p = 0; p < views.size(); ++p)
      threads.emplace_back([&, p] {
        errors[p] = reason_of(
            [&] { choices[p] = plan_all_reduce(topology, algorithms, {}, sizes, views[p].get()); });
      });
  }
  std::vector<std::string> errors;
  std::vector<Choices> choices;
};

std::atomic<int> plans_made{0};
Plan counted(const Request& request) {
  ++plans_made;
  return empty_plan(request, "counted", 1);
}

TEST(Planner, ProcessesThatDivideTheWorkEndWithWhatEachWouldFind) {
  const Topology topology = example_topology("4x4");
  const std::vector<std::size_t> sizes{256, 4 * kKiB, 64 * kKiB, kMiB, 16 * kMiB, 64 * kMiB};
  const auto algorithms = with({"counted", false, anywhere, counted, no_scratch});
  const Choices alone = plan_all_reduce(topology, algorithms, {}, sizes);
  for (const int processes : {1, 2, 3, 16}) {
    plans_made = 0;
    const Divided divided(processes, topology, algorithms, sizes);
    EXPECT_EQ(plans_made, int(sizes.size())) << "each price is found once";
    for (const Choices& choices : divided.choices) {
      ASSERT_EQ(choices.hash(), alone.hash());
      for (std::size_t i = 0; i < sizes.size(); ++i)
        for (std::size_t a = 0; a < alone.algorithms().size(); ++a) {
          const Price &one = choices.price(i, a), &other = alone.price(i, a);
          EXPECT_EQ(one.seconds, other.seconds);
          EXPECT_EQ(one.memory_bytes, other.memory_bytes);
          EXPECT_EQ(one.rounds, other.rounds);
          EXPECT_EQ(one.reduced, other.reduced);
        }
    }
  }
}

TEST(Planner, SaysBeforeEachPriceHowManyAreFound) {
  std::vector<std::size_t> done;
  std::size_t all = 0;
  plan_all_reduce(
      example_topology("4x4"), all_reduce_algorithms(), {}, {kKiB, kMiB}, nullptr,
      {.progress = [&](std::size_t found, std::size_t of) { done.push_back(found), all = of; }});
  ASSERT_EQ(done.size(), all);
  for (std::size_t i = 0; i < all; ++i) EXPECT_EQ(done[i], i);
  EXPECT_GT(all, 4u);
}

TEST(Planner, WhatOneProcessCannotPriceFailsOnAll) {
  const auto algorithms = with({"forever", false, anywhere, forever, no_scratch});
  const Divided divided(3, example_topology("1x4"), algorithms, {kMiB});
  for (const std::string& error : divided.errors) EXPECT_THAT(error, HasSubstr("waits for ever"));
}

// Ranks that hold the same numbers make the same choices, also if the numbers went through a file.
TEST(Planner, EveryRankMakesTheSameTable) {
  const Topology topology = example_topology("4x4");
  const Topology read = topology_from_json(to_json(topology));
  const std::vector<std::size_t> sizes{4 * kKiB, kMiB, 100 * kMiB};
  const Choices one = plan_all_reduce(topology, all_reduce_algorithms(), {}, sizes);
  const Choices other = plan_all_reduce(read, all_reduce_algorithms(), {}, sizes);
  EXPECT_EQ(one.hash(), other.hash());
  for (std::size_t i = 0; i < sizes.size(); ++i)
    for (std::size_t a = 0; a < one.algorithms().size(); ++a)
      EXPECT_EQ(one.price(i, a).seconds, other.price(i, a).seconds);
  EXPECT_NE(one.hash(),
            plan_all_reduce(example_topology("1x8"), all_reduce_algorithms(), {}, sizes).hash());
}

// On four hosts of two ranks both have as many rounds, but with one algorithm only one rank per
// host sends.
TEST(Planner, OfTwoThatTakeAsLongTheOneWithHalfTheMessages) {
  const Choices choices = plan_all_reduce(example_topology("4x2"), all_reduce_algorithms());
  const Choice choice = choices.choose(256);
  EXPECT_EQ(choice.algorithm, "hierarchical_halving");
  EXPECT_EQ(choice.runner_up, "halving_doubling");
  EXPECT_THAT(choice.reason,
              HasSubstr("halving_doubling takes as long, but sends 16 messages instead of 8"));
}

// Returns the choice for all-reduces of this many bytes whose trials took the same time.
Choice choice_of_equals(Topology topology, std::size_t bytes, double seconds) {
  for (const char* name : {"ring", "halving_doubling"})
    topology.trials.push_back({.algorithm = name,
                               .bytes = double(bytes),
                               .simulated = price(find_algorithm(name), topology, bytes).seconds,
                               .seconds = seconds});
  return plan_all_reduce(topology, all_reduce_algorithms()).choose(bytes);
}

// If one rank leaves the barrier before a trial late, both trials take the same time.
TEST(Planner, OfTwoThatTakeAsLongTheOneWithHalfTheRounds) {
  const Choice two = choice_of_equals(example_topology("2x1"), 4 * kKiB, 60e-6);
  EXPECT_EQ(two.algorithm, "halving_doubling");
  EXPECT_EQ(two.reason,
            "ring takes as long (within 10 %), but needs 2 communication rounds instead of 1");
  // On a slow wire rounds take less than half of the time.
  Topology slow = example_topology("2x1");
  slow.wire.bandwidth = 125e6, slow.wire.latency = 10e-6;
  EXPECT_EQ(choice_of_equals(slow, 4 * kKiB, 60e-6).algorithm, "halving_doubling");
  slow.wire.bandwidth = 12.5e6, slow.wire.latency = 1e-6;  // rounds take next to nothing
  EXPECT_EQ(choice_of_equals(slow, 4 * kKiB, 400e-6).algorithm, "ring");
  Topology four = example_topology("4x1");
  EXPECT_EQ(choice_of_equals(four, 4 * kKiB, 60e-6).algorithm, "halving_doubling");
  // Fewer rounds are no reason if the wire takes most of the time.
  four.wire.bandwidth = 1e6;
  EXPECT_EQ(choice_of_equals(four, 4 * kKiB, 20e-3).algorithm, "ring");
}

TEST(Planner, OneRankHasNothingToSend) {
  const Choices choices = plan_all_reduce(example_topology("1x1"), all_reduce_algorithms());
  EXPECT_FALSE(choices.table().empty());
  for (const Choice& choice : choices.table()) {
    EXPECT_EQ(choice.algorithm, "direct");
    EXPECT_EQ(choice.seconds, 0);
    EXPECT_EQ(choice.reason, "there is one rank, so nothing has to be sent");
    EXPECT_EQ(choice.runner_up, "");
  }
}

TEST(Planner, WhatCannotBePlannedIsRefused) {
  const Topology topology = example_topology("3x1");
  EXPECT_THAT(reason_of([&] { plan_all_reduce(topology, {}); }), HasSubstr("none is given"));
  EXPECT_THAT(reason_of([&] { plan_all_reduce({}, all_reduce_algorithms()); }),
              HasSubstr("without ranks"));
  const auto broken = with({"forever", false, anywhere, forever, no_scratch});
  EXPECT_THAT(reason_of([&] { plan_all_reduce(topology, broken, {}, {kMiB}); }),
              HasSubstr("rank 0 lane 0 waits for ever at step 0: await 1 of lane 0 of r0"));
}

struct Golden {
  const char* name;
  std::vector<const char*> chosen;  // at 4 KiB, 1 MiB, 100 MiB
};

// The planner chooses what is best on these clusters. The comments below give the reasons.
TEST(Planner, ChoosesForTheExamples) {
  const Golden golden[] = {
      // Two passes over memory are the least possible.
      {"1x1", {"direct", "direct", "direct"}},
      {"1x4", {"one_shot", "direct", "direct"}},
      // One wait is better than two. For larger sums a ring is best, which has no link over PCI
      // Express.
      {"1x8", {"one_shot", "ring", "ring"}},
      // If latency counts, two successive messages are better than four. With one rank per host, a
      // hierarchy cannot be better than a ring.
      {"3x1", {"halving_doubling", "ring", "ring"}},
      // Each byte leaves its host once, and not once per rank.
      {"4x4", {"hierarchical_halving", "hierarchical", "hierarchical"}},
      {"8x8", {"hierarchical_halving", "hierarchical", "hierarchical"}},
      {"16x8", {"hierarchical_halving", "hierarchical_halving", "hierarchical"}},
      // A ring of 128 hosts has too many rounds.
      {"128x8", {"hierarchical_halving", "hierarchical_halving", "hierarchical_halving"}},
  };
  for (const Golden& cluster : golden) {
    const Choices choices = plan_all_reduce(example_topology(cluster.name), all_reduce_algorithms(),
                                            {}, {4 * kKiB, kMiB, 100 * kMiB});
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_EQ(choices.choose(choices.sizes()[i]).algorithm, cluster.chosen[i])
          << cluster.name << " " << choices.sizes()[i] << ": "
          << choices.choose(choices.sizes()[i]).reason;
  }
}

TEST(Planner, TimesBelowATenthOfAMicrosecondAreNanoseconds) {
  EXPECT_EQ(time_text(0), "0 ns");
  EXPECT_EQ(time_text(4.2e-9), "4.2 ns");
  EXPECT_EQ(time_text(43e-9), "43 ns");
  EXPECT_EQ(time_text(0.1e-6), "0.1 us");
}

TEST(Planner, OneSignalIsOne) {
  const Choices choices = plan_all_reduce(example_topology("1x4"), all_reduce_algorithms());
  std::string all;
  for (const Choice& choice : choices.table()) all += choice.reason + "\n";
  EXPECT_THAT(all, HasSubstr(" needs 1 communication round, "));
  EXPECT_THAT(all, testing::Not(HasSubstr("1 communication rounds")));
}

TEST(Planner, ReasonsSayWhatIsSaved) {
  const auto reason = [](const char* name, std::size_t bytes) {
    return plan_all_reduce(example_topology(name), all_reduce_algorithms(), {}, {bytes})
        .choose(bytes)
        .reason;
  };
  EXPECT_THAT(reason("1x4", 64 * kMiB), HasSubstr("direct moves 512 MiB through memory, "));
  EXPECT_THAT(reason("1x8", 64 * kMiB), HasSubstr("a link between two devices limits ring: "));
  EXPECT_THAT(reason("4x4", 4 * kKiB), HasSubstr(" needs 4 communication rounds, "));
  EXPECT_THAT(reason("4x4", 16 * kKiB), HasSubstr(" sends 32 KiB per host, "));
  EXPECT_THAT(reason("4x4", 64 * kMiB), HasSubstr("the wire limits both: "));
}

}  // namespace planner_test
}  // namespace lockstep::collectives
