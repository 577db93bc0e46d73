// SPDX-License-Identifier: MIT
// A ring follows the hosts and their links, and its plan follows the ring.
#include "collectives/topology/ring_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "collectives/algorithms/algorithms.h"
#include "collectives/check/verifier.h"
#include "collectives/cost/price.h"
#include "collectives/topology/example_topologies.h"
#include "engine/base/error.h"

namespace lockstep::collectives {
namespace ring_order_test {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int> numbers(int n) {
  std::vector<int> list(static_cast<std::size_t>(n));
  std::iota(list.begin(), list.end(), 0);
  return list;
}

// Returns devices with a port of 1 byte/s and these links.
HostCosts devices(std::vector<PeerLink> links) {
  HostCosts costs;
  costs.link = LinkClass::kNvlink;
  costs.port = 1;
  costs.links = std::move(links);
  return costs;
}

double bandwidth(const HostCosts& costs, int a, int b, int n) {
  const double link = costs.direct(n)[std::size_t(a * n + b)];
  return link > 0 ? link : costs.port;
}

double weakest(const HostCosts& costs, const std::vector<int>& way, bool closed) {
  const int n = int(way.size());
  double least = closed ? bandwidth(costs, way.back(), way.front(), n) : 1e300;
  for (std::size_t i = 0; i + 1 < way.size(); ++i)
    least = std::min(least, bandwidth(costs, way[i], way[i + 1], n));
  return least;
}

TEST(RingOrder, OfTheExamples) {
  // The order follows the double links, of which each device has two.
  const Topology cube = example_topology("1x8");
  EXPECT_THAT(ring_order(cube), ElementsAre(0, 3, 2, 1, 5, 6, 7, 4));
  EXPECT_EQ(weakest(cube.hosts[0].costs, ring_order(cube), true), 50e9);
  for (const char* alike : {"1x1", "1x4", "3x1", "4x4", "8x8", "5x3"})
    EXPECT_EQ(ring_order(example_topology(alike)),
              numbers(int(example_topology(alike).ranks.size())))
        << alike;
}

// A ring goes through each host from one end to another, and from there to the next host. This
// makes H edges between H hosts.
TEST(RingOrder, OfSeveralHostsGoesOnceThroughEach) {
  const Topology cubes = equal_hosts(3, 8, example_topology("1x8").hosts[0].costs, {}, 1, "cuda");
  EXPECT_THAT(ring_order(cubes), ElementsAre(0, 3, 2, 1, 5, 6, 7, 4, 8, 11, 10, 9, 13, 14, 15, 12,
                                             16, 19, 18, 17, 21, 22, 23, 20));
  // A chain is a path through a host, though no circle: 2 - 0 - 1.
  const Topology chains = equal_hosts(2, 3, devices({{0, 1, 5}, {0, 2, 5}}), {});
  EXPECT_THAT(ring_order(chains), ElementsAre(1, 0, 2, 4, 3, 5));
  // Ranks that are placed a, b, a, b are ordered a, a, b, b.
  Topology mixed = equal_hosts(2, 3, devices({{0, 1, 5}, {0, 2, 5}}), {});
  for (std::size_t rank = 0; rank < 6; ++rank) mixed.ranks[rank].host = int(rank % 2);
  EXPECT_THAT(ring_order(mixed), ElementsAre(2, 0, 4, 3, 1, 5));
}

TEST(RingOrder, IsTheSameFromWhatAFileSays) {
  const Topology cubes = equal_hosts(2, 8, example_topology("1x8").hosts[0].costs, {}, 1, "cuda");
  EXPECT_EQ(ring_order(topology_from_json(to_json(cubes))), ring_order(cubes));
}

// The order is the first one, by the numbers of its ranks, whose weakest link no other order
// surpasses.
TEST(RingOrder, IsTheBestThereIs) {
  std::mt19937 random(69);
  for (int trial = 0; trial < 300; ++trial) {
    const int n = std::uniform_int_distribution<>(2, 6)(random), hosts = trial % 2 + 1;
    HostCosts costs = devices({});
    for (int a = 0; a < n; ++a)
      for (int b = a + 1; b < n; ++b)
        if (const int strength = std::uniform_int_distribution<>(0, 4)(random); strength > 0)
          costs.links.push_back({a, b, double(strength)});
    const bool closed = hosts == 1;
    std::vector<int> way = numbers(n), best = way;
    do {
      if (weakest(costs, way, closed) > weakest(costs, best, closed)) best = way;
    } while (std::next_permutation(way.begin(), way.end()));
    std::vector<int> found = ring_order(equal_hosts(hosts, n, costs, {}));
    found.resize(std::size_t(n));
    EXPECT_EQ(found, best) << "trial " << trial;
  }
}

TEST(RingOrder, OfManyDevicesFollowsTheStrongestLinkFromEach) {
  constexpr int kRanks = 20;
  HostCosts costs = devices({});
  for (int rank = 0; rank < kRanks; ++rank)  // each to the seventh after it
    costs.links.push_back({rank, (rank + 7) % kRanks, 9});
  std::vector<int> wanted;
  for (int rank = 0; rank < kRanks; ++rank) wanted.push_back(rank * 7 % kRanks);
  EXPECT_EQ(ring_order(equal_hosts(1, kRanks, costs, {})), wanted);
}

TEST(RingOrder, SixteenDevicesOfWhichEachLinkIsAnotherAreSearched) {
  HostCosts costs = devices({});
  for (int a = 0; a < 16; ++a)
    for (int b = a + 1; b < 16; ++b) costs.links.push_back({a, b, 2.0 + (a * 37 + b * 101) % 113});
  std::vector<int> order = ring_order(equal_hosts(1, 16, costs, {}));
  EXPECT_GT(weakest(costs, order, true), weakest(costs, numbers(16), true));
  std::sort(order.begin(), order.end());
  EXPECT_EQ(order, numbers(16));
}

// The plan follows this order, is right, and crosses the network H times.
TEST(RingOrder, IsThatOfThePlan) {
  const Topology cubes = equal_hosts(2, 8, example_topology("1x8").hosts[0].costs, {}, 1, "cuda");
  const Request request = priced_request(cubes, std::size_t(1) << 20);
  const Plan plan = ring_all_reduce(request);
  EXPECT_EQ(verify({{plan, {}, false}}, Goal::kSumEverywhere), "");
  int between = 0;
  for (std::size_t i = 0; i < request.order.size(); ++i) {
    const int rank = request.order[i], next = request.order[(i + 1) % request.order.size()];
    bool read = false, sent = false;
    for (const Lane& lane : plan.lanes[std::size_t(next)])
      for (const Step& step : lane)
        for (const Operand& from : step.from) {
          EXPECT_TRUE(from.rank == next || from.rank == rank) << "rank " << next;
          read |= from.rank == rank;
        }
    for (const Lane& lane : plan.lanes[std::size_t(rank)])
      for (const Step& step : lane)
        if (step.action == Action::kPostSend) {
          EXPECT_EQ(step.peer, next);
          sent = true;
        }
    EXPECT_NE(read, sent);
    between += sent;
  }
  EXPECT_EQ(between, 2);
}

TEST(RingOrder, OfARequestNamesEachRankOnce) {
  for (const std::vector<int>& order : {std::vector<int>{0, 1}, {0, 1, 1}, {0, 1, 3}}) {
    Request request;
    request.name = "p";
    request.host = {0, 0, 0};
    request.subject = {0, 100};
    request.order = order;
    try {
      ring_all_reduce(request);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const engine::Error& error) {
      EXPECT_EQ(error.code(), engine::Code::kInvalid);
      EXPECT_THAT(error.what(), HasSubstr("p: the order of a ring must name each of its 3 ranks"));
    }
  }
}

}  // namespace ring_order_test
}  // namespace lockstep::collectives
