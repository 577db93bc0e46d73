// SPDX-License-Identifier: MIT
// Traffic on the wire matches the formulas, in plans and when they run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/registry.h"
#include "collectives/check/verifier.h"
#include "test/collectives/job.h"

namespace lockstep::test {
namespace traffic_test {

using collectives::Action;
using collectives::Algorithm;
using collectives::all_reduce_algorithms;
using collectives::Lane;
using collectives::slice;
using collectives::Step;
using collectives::Traffic;
using engine::kBlock;

Request ring_request(const std::vector<int>& host, std::size_t length) {
  Request request;
  request.subject = {0, length};
  request.host = host;
  return request;
}

Traffic total(const Plan& plan) {
  Traffic sum;
  for (const Traffic& rank : collectives::traffic(plan))
    sum.messages += rank.messages, sum.elements += rank.elements;
  return sum;
}

std::size_t chunks_that_are_not_empty(Range subject, int ranks) {
  std::size_t count = 0;
  for (int chunk = 0; chunk < ranks; ++chunk) count += !slice(subject, chunk, ranks).empty();
  return count;
}

TEST(Traffic, OfAFlatRingIsTheClosedFormula) {
  for (int ranks = 1; ranks <= 17; ++ranks)
    for (const std::size_t length : {std::size_t(0), std::size_t(1), std::size_t(ranks), kBlock,
                                     3 * kBlock + 5, std::size_t(104729), std::size_t(1000000)}) {
      Request request = ring_request(hosts("apart", ranks), length);
      const std::size_t passes = 2 * std::size_t(ranks - 1);
      EXPECT_EQ(total(ring_all_reduce(request)).elements, passes * length)
          << ranks << " ranks, " << length;
      // In one segment, each pass sends each chunk that is not empty.
      if (length > 8 * kBlock) continue;
      EXPECT_EQ(total(ring_all_reduce(request)).messages,
                passes * chunks_that_are_not_empty({0, length}, ranks));
    }
}

// Messages have about the requested size. At least two segments are in flight if that is worth it.
TEST(Traffic, IsCutToMessagesOfTheSizeThatIsAskedFor) {
  for (const Algorithm& algorithm : all_reduce_algorithms()) {
    Request request = ring_request({0, 1, 2, 3}, 4 * 64 * kBlock);
    if (!algorithm.refusal(request.host).empty()) continue;
    for (const std::size_t blocks : {4, 16, 64}) {
      request.chunk_bytes = blocks * kBlock * sizeof(float);
      const std::size_t segments = std::max<std::size_t>(64 / blocks, 2);
      const Plan plan = algorithm.make(request);
      const std::size_t rounds = algorithm.name.find("halving") == std::string::npos ? 6 : 4;
      for (const Traffic& rank : collectives::traffic(plan))
        EXPECT_EQ(rank.messages, segments * rounds) << algorithm.name;
      for (const auto& lanes : plan.lanes)
        EXPECT_EQ(lanes.size(), std::min<std::size_t>(segments, 4));
    }
  }
}

TEST(Traffic, OfEachRankOfARingIsAnEqualShare) {
  for (int ranks = 2; ranks <= 9; ++ranks) {
    const std::size_t length = 2 * std::size_t(ranks) * 3 * kBlock;
    for (const Traffic& rank :
         collectives::traffic(ring_all_reduce(ring_request(hosts("apart", ranks), length))))
      EXPECT_EQ(rank.elements, 2 * std::size_t(ranks - 1) * length / std::size_t(ranks));
  }
}

TEST(Traffic, OfARingCrossesAsManyEdgesAsThereAreHosts) {
  for (const std::string& layout : kLayouts)
    for (int ranks = 1; ranks <= 17; ++ranks) {
      const std::vector<int> host = hosts(layout, ranks);
      const std::size_t count = std::set<int>(host.begin(), host.end()).size();
      const std::size_t length = 6 * std::size_t(ranks) * kBlock;
      const Plan plan = ring_all_reduce(ring_request(host, length));
      std::set<std::pair<int, int>> edges;
      for (int rank = 0; rank < ranks; ++rank)
        for (const Lane& lane : plan.lanes[std::size_t(rank)])
          for (const Step& step : lane)
            if (step.action == Action::kPostSend) edges.insert({rank, step.peer});
      EXPECT_EQ(edges.size(), count == 1 ? 0 : count) << layout << " " << ranks;
      // Each edge carries 2 (n - 1) / n of the subject.
      EXPECT_EQ(total(plan).elements,
                edges.size() * 2 * std::size_t(ranks - 1) * length / std::size_t(ranks))
          << layout << " " << ranks;
    }
}

// A hostfile that interleaves, a b a b, gives the order a a b b. Each rank passes on inside its
// host first, and one rank of each host passes on to the other host.
TEST(Traffic, OfARingGoesThroughAHostBeforeItLeaves) {
  const Plan plan = ring_all_reduce(ring_request({0, 1, 0, 1}, 24 * kBlock));
  std::map<int, std::set<int>> next;
  for (int rank = 0; rank < 4; ++rank)
    for (const Lane& lane : plan.lanes[std::size_t(rank)])
      for (const Step& step : lane) {
        if (step.action == Action::kPostSend) next[rank].insert(step.peer);
        if (step.action != Action::kReduce) continue;
        for (const collectives::Operand& from : step.from)
          if (from.rank != rank) next[from.rank].insert(rank);
      }
  EXPECT_EQ(next, (std::map<int, std::set<int>>{{0, {2}}, {2, {1}}, {1, {3}}, {3, {0}}}));
}

// Both directions of a wire are busy. When a rank waits for the message of a round, it has posted
// its own message of that round and the next receive.
TEST(Traffic, OfARingIsFullDuplexAndPostedAhead) {
  for (const int ranks : {3, 5}) {
    const Plan plan = ring_all_reduce(ring_request(hosts("apart", ranks), 100 * kBlock));
    for (const auto& lanes : plan.lanes)
      for (const Lane& lane : lanes) {
        int sends = 0, receives = 0, waits = 0;
        const int rounds = 2 * (ranks - 1);
        for (const Step& step : lane) {
          sends += step.action == Action::kPostSend;
          receives += step.action == Action::kPostReceive;
          if (step.action != Action::kWait) continue;
          if (lane[std::size_t(step.post)].action != Action::kPostReceive) continue;
          ++waits;
          EXPECT_GE(sends, waits);
          EXPECT_EQ(receives, std::min(waits + 1, rounds));
        }
        EXPECT_EQ(waits, rounds);
      }
  }
}

// Of n ranks, 2^L are cores. The other n - 2^L send everything before the rounds and receive
// everything after them.
TEST(Traffic, OfHalvingDoublingIsTheClosedFormula) {
  for (std::size_t ranks = 1; ranks <= 17; ++ranks) {
    std::size_t cores = 1, rounds = 0;
    while (2 * cores <= ranks) cores *= 2, ++rounds;
    for (const std::size_t length : {std::size_t(0), std::size_t(1), std::size_t(4096)}) {
      const Plan plan =
          halving_doubling_all_reduce(ring_request(hosts("apart", int(ranks)), length));
      const std::size_t messages = length == 0 ? 0 : cores * rounds + 2 * (ranks - cores);
      EXPECT_EQ(total(plan).messages, messages) << ranks << " ranks, " << length;
      EXPECT_EQ(total(plan).elements, messages * length);
    }
    for (const std::size_t length :
         {std::size_t(4097), std::size_t(104729), std::size_t(1000000)}) {
      const Plan plan =
          halving_doubling_all_reduce(ring_request(hosts("apart", int(ranks)), length));
      EXPECT_EQ(total(plan).elements, 2 * (ranks - 1) * length) << ranks << " ranks, " << length;
    }
    // Each core sends an equal share, in twice as many messages as there are rounds.
    if (cores != ranks) continue;
    const Plan plan =
        halving_doubling_all_reduce(ring_request(hosts("apart", int(ranks)), 5 * ranks * kBlock));
    for (const Traffic& rank : collectives::traffic(plan)) {
      EXPECT_EQ(rank.elements, 2 * (ranks - 1) * 5 * kBlock);
      EXPECT_EQ(rank.messages, 2 * rounds);
    }
  }
}

// Ranks of one host do not send to each other. On hosts a, a, b, b they exchange a quarter with the
// other host, after they have halved inside their own.
TEST(Traffic, OfHalvingDoublingIsLessWhereNeighboursShareAHost) {
  const std::size_t length = 8 * kBlock;
  const auto elements = [&](const std::vector<int>& host) {
    return total(halving_doubling_all_reduce(ring_request(host, length))).elements;
  };
  EXPECT_EQ(elements({0, 0, 0, 0}), 0u);
  EXPECT_EQ(elements({0, 0, 1, 1}), 4 * 2 * length / 4);
  EXPECT_EQ(elements({0, 1, 0, 1}), 4 * 2 * length / 2);
  EXPECT_EQ(elements({0, 1, 2, 3}), 4 * 2 * (length / 2 + length / 4));
}

TEST(Traffic, OfTheHierarchiesIsTheClosedFormula) {
  for (const std::string& layout : kLayouts)
    for (int ranks = 1; ranks <= 17; ++ranks) {
      const std::vector<int> host = hosts(layout, ranks);
      const std::size_t count = std::set<int>(host.begin(), host.end()).size();
      // The total does not depend on the number of slices.
      for (const std::size_t length : {std::size_t(104729), 720 * kBlock}) {
        const Request request = ring_request(host, length);
        for (const Plan& plan :
             {hierarchical_all_reduce(request), hierarchical_halving_all_reduce(request),
              leader_hierarchical_all_reduce(request)})
          EXPECT_EQ(total(plan).elements, 2 * (count - 1) * length)
              << plan.algorithm << " " << layout << " " << ranks;
      }
    }
}

std::vector<int> grid(int hosts, int ranks) {
  std::vector<int> host;
  for (int rank = 0; rank < hosts * ranks; ++rank) host.push_back(rank / ranks);
  return host;
}

// Holds the traffic of one host: elements of all its ranks, messages of one leader, and number of
// ranks that send.
struct OfAHost {
  std::size_t elements = 0, messages = 0;
  int senders = 0;
  bool operator==(const OfAHost&) const = default;
};
OfAHost of_host(const Plan& plan, int host) {
  OfAHost sum;
  const auto list = collectives::traffic(plan);
  for (std::size_t rank = 0; rank < list.size(); ++rank) {
    if (plan.host[rank] != host || list[rank].messages == 0) continue;
    ++sum.senders;
    sum.elements += list[rank].elements;
    sum.messages = std::max(sum.messages, list[rank].messages);
  }
  return sum;
}

// With 4 hosts of 4 ranks, a host sends 1.5 S in 6 rounds with hierarchies, or in 4 with halving.
// With a ring it sends 1.875 S in 30 rounds.
TEST(Traffic, OfAHierarchyIsLessInFewerRounds) {
  const std::size_t length = 32 * kBlock;
  const Request request = ring_request(grid(4, 4), length);
  for (int host = 0; host < 4; ++host) {
    EXPECT_EQ(of_host(hierarchical_all_reduce(request), host), (OfAHost{length * 3 / 2, 6, 4}));
    EXPECT_EQ(of_host(leader_hierarchical_all_reduce(request), host),
              (OfAHost{length * 3 / 2, 6 * 2, 1}));  // two segments
    EXPECT_EQ(of_host(hierarchical_halving_all_reduce(request), host),
              (OfAHost{length * 3 / 2, 4, 4}));
    EXPECT_EQ(of_host(ring_all_reduce(request), host), (OfAHost{length * 15 / 8, 30, 1}));
  }
  // So few elements are sent as whole slices, all of them in two rounds.
  const Request few = ring_request(grid(4, 4), 4 * kBlock);
  for (int host = 0; host < 4; ++host)
    EXPECT_EQ(of_host(hierarchical_halving_all_reduce(few), host), (OfAHost{2 * 4 * kBlock, 2, 4}));
}

// A hierarchy has as many slices as the smallest host has ranks. On a host with more ranks, the
// leaders rotate with the bucket.
TEST(Traffic, OfAHierarchyIsSharedByAsManyLeadersAsTheSmallestHostHasRanks) {
  std::set<int> leaders;
  for (int rotation = 0; rotation < 6; ++rotation) {
    Request request = ring_request({0, 1, 0, 1, 0}, 12 * kBlock);
    request.rotation = rotation;
    const auto list = collectives::traffic(hierarchical_all_reduce(request));
    int senders = 0;
    for (const int rank : {0, 2, 4})
      if (list[std::size_t(rank)].messages > 0) ++senders, leaders.insert(rank);
    EXPECT_EQ(senders, 2);
    EXPECT_GT(list[1].messages, 0u);
    EXPECT_GT(list[3].messages, 0u);
  }
  EXPECT_EQ(leaders, (std::set<int>{0, 2, 4}));
}

// The wire does not wait for additions. Every receive but the first of a segment is posted before
// its lane has waited for the previous one.
TEST(Traffic, OfAHierarchyIsPostedAheadOfNeed) {
  const Plan plan = hierarchical_all_reduce(ring_request(grid(4, 2), 3000 * kBlock));
  for (const auto& lanes : plan.lanes)
    for (const Lane& lane : lanes) {
      int receives = 0, waits = 0, ahead = 0;
      for (const Step& step : lane) {
        receives += step.action == Action::kPostReceive;
        if (step.action != Action::kWait) continue;
        if (lane[std::size_t(step.post)].action != Action::kPostReceive) continue;
        ++waits;
        ahead += receives > waits;
      }
      // All but the last of the 6 receives of each segment are waited for with another one posted.
      EXPECT_EQ(waits % 6, 0);
      EXPECT_EQ(ahead, waits / 6 * 5);
    }
}

// Each number is read once from each rank of a host and written once into each. Received numbers
// are read again for their sums and for the copies into other ranks.
TEST(Traffic, InMemoryOfAHierarchyIsThatOfDirectAndOfTheWire) {
  const std::size_t length = 64 * kBlock;
  const Plan plan = hierarchical_all_reduce(ring_request(grid(4, 2), length));
  std::size_t read = 0, written = 0;
  for (const auto& lanes : plan.lanes)
    for (const Lane& lane : lanes)
      for (const Step& step : lane)
        if (step.action == Action::kReduce)
          read += step.count * step.from.size(), written += step.count * step.to.size();
  const std::size_t hosts = 4, ranks = 2;
  EXPECT_EQ(read, hosts * ranks * length         // inputs
                      + (hosts - 1) * length     // received partial sums, added
                      + (hosts - 1) * length);   // received sums, copied into other ranks
  EXPECT_EQ(written, hosts * length              // partial sums, and the last sum
                         + (ranks - 1) * length  // the last sum, into the other ranks
                         + (hosts - 1) * (ranks - 1) * length);
}

TEST(Traffic, ThatIsMeasuredIsWhatThePlanSays) {
  for (const std::string& layout : kLayouts)
    for (const Algorithm& algorithm : all_reduce_algorithms()) {
      const Request request = ring_request(hosts(layout, 6), 20001);
      if (!algorithm.refusal(request.host).empty()) continue;
      const Plan plan = algorithm.make(request);
      Job job({{plan, {}, false}}, 20001 + algorithm.scratch(request));
      job.execute({0});
      EXPECT_EQ(job.fabric().messages(), total(plan).messages) << algorithm.name << " " << layout;
      const auto wanted = collectives::traffic(plan);
      for (int rank = 0; rank < 6; ++rank)
        EXPECT_EQ(job.fabric().bytes_sent(rank),
                  wanted[std::size_t(rank)].elements * sizeof(float));
    }
}

TEST(Algorithms, RefuseWhatTheyCannotDo) {
  const auto why = [](auto&& make) -> std::string {
    try {
      make();
    } catch (const engine::Error& error) {
      return error.code() == engine::Code::kInvalid ? error.what() : "another code";
    }
    return "nothing";
  };
  Request apart = ring_request({0, 0, 1}, 10);
  apart.name = "bucket 0";
  EXPECT_EQ(why([&] { direct_all_reduce(apart); }),
            "bucket 0: direct needs all ranks on one host, since it reads their memory, but rank 0 "
            "is on host 0 and rank 2 on host 1; ring crosses hosts");
  Request squares = apart;
  squares.squares = true;
  EXPECT_EQ(why([&] { ring_all_reduce(squares); }),
            "bucket 0: ring leaves no squares; add local_squares after it");
  Request integers = apart;
  integers.dtype = DType::kInt32, integers.mean = true;
  EXPECT_EQ(why([&] { ring_all_reduce(integers); }),
            "bucket 0: the mean of int32 is no int32; ask for the sum");
  Request minimum = ring_request({0, 0}, 10);
  minimum.name = "x", minimum.update = true;
  for (const Algorithm& algorithm : all_reduce_algorithms()) {
    minimum.op = algorithm.updates ? ReduceOp::kMin : ReduceOp::kSum;
    EXPECT_THAT(
        why([&] { algorithm.make(minimum); }),
        testing::HasSubstr(algorithm.updates ? "x: an update takes the plain sum of gradients"
                                             : "no place for an update"))
        << algorithm.name;
  }
  minimum.op = ReduceOp::kMin, minimum.update = false;
  for (const Algorithm& algorithm : all_reduce_algorithms())
    EXPECT_EQ(why([&] { algorithm.make(ring_request({}, 10)); }),
              ": a plan needs at least one rank");
  EXPECT_EQ(why([&] { hierarchical_all_reduce(squares); }),
            "bucket 0: hierarchical leaves no squares; add local_squares after it");
  EXPECT_EQ(why([&] { halving_doubling_all_reduce(squares); }),
            "bucket 0: halving_doubling leaves no squares; add local_squares after it");
  Request nobody = ring_request({0, 0}, 10);
  nobody.root = 2;
  EXPECT_EQ(why([&] { direct_broadcast(nobody); }), ": rank 2 of 2 cannot hand anything out");
  EXPECT_EQ(why([&] { direct_all_gather(minimum); }), "x: numbers are handed out as they are");
}

TEST(Slices, AreTheSubjectCutAtBlocks) {
  for (const Range subject :
       {Range{0, 0}, Range{0, 1}, Range{5, 7 * kBlock + 3}, Range{kBlock, 40 * kBlock}})
    for (int parts = 1; parts <= 9; ++parts) {
      std::size_t at = subject.begin, most = 0, least = subject.size();
      for (int part = 0; part < parts; ++part) {
        const Range s = slice(subject, part, parts);
        EXPECT_EQ(s.begin, at);
        EXPECT_TRUE(s.end == subject.end || s.end % kBlock == 0 || s.end == subject.begin);
        most = std::max(most, s.size()), least = std::min(least, s.size());
        at = s.end;
      }
      EXPECT_EQ(at, subject.end);
      EXPECT_LE(most - least, 2 * kBlock);
    }
}

TEST(Plans, OfAllRanksHaveOneHashThatKnowsEveryStep) {
  const auto hash_of = [](const Plan& plan) { return collectives::hash({{plan, {}, false}}); };
  const Plan plan = ring_all_reduce(ring_request({0, 0, 1}, 5000));
  EXPECT_EQ(hash_of(plan), hash_of(ring_all_reduce(ring_request({0, 0, 1}, 5000))));
  std::set<std::uint64_t> seen{hash_of(plan)};
  const auto is_new = [&](const collectives::StepPlan& step) {
    EXPECT_TRUE(seen.insert(collectives::hash(step)).second) << collectives::print(step);
  };
  is_new({{ring_all_reduce(ring_request({0, 0, 1}, 5001)), {}, false}});
  is_new({{ring_all_reduce(ring_request({0, 1, 1}, 5000)), {}, false}});
  is_new({{plan, {}, true}});
  is_new({{plan, {}, false}, {plan, {}, false}});
  is_new({{plan, {}, false}, {plan, {0}, false}});
  for (std::size_t step = 0; step < plan.lanes[1][0].size(); ++step) {
    Plan other = plan;
    Step& s = other.lanes[1][0][step];
    if (s.action == Action::kReduce) s.from[0].offset += kBlock;
    if (s.action == Action::kPostSend || s.action == Action::kPostReceive) ++s.count;
    if (s.action == Action::kWait) s.post += 1;
    if (s.action == Action::kAwait) s.phase += 1;
    if (s.action == Action::kArrive) s.action = Action::kWait, s.post = 0;
    is_new({{other, {}, false}});
  }
  Plan scaled = plan;
  Request mean = ring_request({0, 0, 1}, 5000);
  mean.mean = true;
  is_new({{ring_all_reduce(mean), {}, false}});
}

// The hash is FNV-1a 64 of a plan's text. The published vector: "a" gives af63dc4c8601ec8c.
TEST(Plans, HashIsFnv1aOfTheirText) {
  std::uint64_t value = 0xcbf29ce484222325u;
  const StepPlan step{{ring_all_reduce(ring_request({0, 1}, 10)), {}, false}};
  for (const unsigned char c : collectives::print(step)) value = (value ^ c) * 0x100000001b3u;
  EXPECT_EQ(collectives::hash(step), value);
  EXPECT_EQ((0xcbf29ce484222325u ^ 'a') * 0x100000001b3u, 0xaf63dc4c8601ec8cu);
}

TEST(Plans, OwnTheRangesThatTheyUpdate) {
  Request request = ring_request({0, 0, 0}, 7 * kBlock + 9);
  request.rotation = 1;
  EXPECT_EQ(collectives::owned(direct_all_reduce(request), 0), std::vector<Range>{});
  request.update = true;
  const Plan plan = direct_all_reduce(request);
  std::vector<Range> all;
  for (int rank = 0; rank < 3; ++rank) {
    const auto mine = collectives::owned(plan, rank);
    ASSERT_EQ(mine.size(), 1u);
    EXPECT_EQ(mine[0], slice(request.subject, (rank + 1) % 3, 3));
  }
}

// Each number is updated at one rank, so a job holds the optimizer's state once for any number of
// ranks.
TEST(Plans, UpdateEachNumberAtOneRank) {
  for (const Algorithm& algorithm : all_reduce_algorithms())
    for (const std::vector<int>& host :
         {std::vector<int>{0}, {0, 0, 0, 0}, {0, 1, 2}, {0, 0, 1, 1}, {0, 1, 1, 2}}) {
      if (!algorithm.updates || !algorithm.refusal(host).empty()) continue;
      Request request = ring_request(host, 29 * kBlock + 9);
      request.update = true, request.chunk_bytes = 8192;
      const Plan plan = algorithm.make(request);
      std::vector<int> owners(request.subject.size(), 0);
      for (int rank = 0; rank < plan.ranks(); ++rank)
        for (const Range range : collectives::owned(plan, rank))
          for (std::size_t i = range.begin; i < range.end; ++i) ++owners[i - request.subject.begin];
      EXPECT_EQ(owners, std::vector<int>(request.subject.size(), 1)) << algorithm.name;
    }
}

}  // namespace traffic_test
}  // namespace lockstep::test
