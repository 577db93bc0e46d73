// SPDX-License-Identifier: MIT
// The verifier and transports tell messages of a lane apart by the order of their posts, whatever
// the order of the waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/algorithms/steps.h"
#include "collectives/check/verifier.h"
#include "test/collectives/job.h"

namespace lockstep::test {
namespace verifier_order_test {

using collectives::Goal;
using collectives::Lane;
using collectives::post_receive;
using collectives::post_send;
using collectives::reduce;
using collectives::verify;
using collectives::wait;
using testing::HasSubstr;

constexpr std::size_t kHalf = 16;

// Selects the order in which receives are posted and waited for. Two ranks on two hosts each send
// their numbers to the other in two messages of one length, front and back.
struct Order {
  bool back_posted_first = false, back_awaited_first = false;
  bool sends_apart = false;  // the second is posted after the first completes
};

Plan exchange(const Order& order) {
  Plan plan;
  plan.name = "p";
  plan.algorithm = "exchange";
  plan.subject = {0, 2 * kHalf};
  plan.host = {0, 1};
  plan.lanes.resize(2);
  for (const int rank : {0, 1}) {
    Lane& lane = plan.lanes[std::size_t(rank)].emplace_back();
    const std::size_t posted[2] = {order.back_posted_first ? kHalf : 0,
                                   order.back_posted_first ? 0 : kHalf};
    for (const std::size_t at : posted)
      lane.push_back(post_receive(kHalf, {rank, Space::kScratch, at}, 1 - rank));
    lane.push_back(post_send(kHalf, {rank, Space::kGradient, 0}, 1 - rank));
    if (order.sends_apart) lane.push_back(wait(2));
    const int second = int(lane.size());
    lane.push_back(post_send(kHalf, {rank, Space::kGradient, kHalf}, 1 - rank));
    const int back = order.back_posted_first ? 0 : 1;
    lane.push_back(wait(order.back_awaited_first ? back : 1 - back));
    lane.push_back(wait(order.back_awaited_first ? 1 - back : back));
    if (!order.sends_apart) lane.push_back(wait(2));
    lane.push_back(wait(second));
    lane.push_back(reduce(2 * kHalf, {{rank, Space::kGradient, 0}, {rank, Space::kScratch, 0}},
                          {{rank, Space::kGradient, 0}}));
  }
  return plan;
}

// Returns the sums of both ranks. Element i of rank r is 100 r + i.
std::vector<float> executed(const Plan& plan) {
  Job job({{plan, {}, false}}, 2 * kHalf);
  for (const int rank : {0, 1})
    for (std::size_t i = 0; i < 2 * kHalf; ++i)
      job.values<float>(rank)[i] = float(100 * rank) + float(i);
  job.execute({0});
  std::vector<float> all;
  for (const int rank : {0, 1})
    all.insert(all.end(), job.values<float>(rank), job.values<float>(rank) + 2 * kHalf);
  return all;
}

std::vector<float> right() {
  std::vector<float> all;
  for (std::size_t i = 0; i < 4 * kHalf; ++i) all.push_back(100 + 2 * float(i % (2 * kHalf)));
  return all;
}

TEST(VerifierOrder, WaitsMayBeInAnyOrder) {
  for (const bool swapped : {false, true})
    for (const bool apart : {false, true}) {
      const Plan plan = exchange({.back_awaited_first = swapped, .sends_apart = apart});
      EXPECT_EQ(verify(plan, Goal::kSumEverywhere), "") << swapped << apart;
      EXPECT_EQ(executed(plan), right()) << swapped << apart;
    }
}

TEST(VerifierOrder, PostsInAnotherOrderThanTheSendsAreWrongWhateverTheWaits) {
  for (const bool swapped : {false, true}) {
    const Plan plan = exchange({.back_posted_first = true, .back_awaited_first = swapped});
    EXPECT_THAT(verify(plan, Goal::kSumEverywhere), HasSubstr("sum of numbers of different places"))
        << swapped;
    EXPECT_NE(executed(plan), right()) << swapped;
  }
}

TEST(VerifierOrder, MessagesThatNobodyReceivesAndReceivesOfNone) {
  Plan plan = exchange({});
  Lane& lane = plan.lanes[1][0];
  const Plan whole = plan;
  lane.push_back(post_send(kHalf, {1, Space::kGradient, 0}, 0));
  lane.push_back(wait(int(lane.size()) - 1));
  EXPECT_THAT(verify(plan, Goal::kSumEverywhere), HasSubstr("deadlock"));
  plan = whole;
  plan.lanes[1][0].push_back(post_receive(kHalf, {1, Space::kScratch, 0}, 0));
  plan.lanes[1][0].push_back(wait(int(plan.lanes[1][0].size()) - 1));
  EXPECT_THAT(verify(plan, Goal::kSumEverywhere), HasSubstr("deadlock"));
}

}  // namespace verifier_order_test
}  // namespace lockstep::test
