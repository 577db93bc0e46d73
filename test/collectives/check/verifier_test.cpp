// SPDX-License-Identifier: MIT
// The verifier accepts every algorithm, and refuses broken plans with a message that says why.
#include "collectives/check/verifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/registry.h"
#include "collectives/algorithms/steps.h"
#include "test/collectives/job.h"

namespace lockstep::test {
namespace verifier_test {

using collectives::Action;
using collectives::Algorithm;
using collectives::all_reduce_algorithms;
using collectives::Goal;
using collectives::Lane;
using collectives::Operand;
using collectives::Step;
using collectives::verify;
using engine::Epilogue;
using engine::kBlock;
using testing::HasSubstr;

Request request(const std::vector<int>& host, Range subject) {
  Request request;
  request.name = "p";
  request.subject = subject;
  request.host = host;
  return request;
}

Request request(int ranks, Range subject) {
  return request(hosts("one", ranks), subject);
}

// Returns counts around everything that an algorithm may divide by.
std::vector<std::size_t> counts(int ranks) {
  return {
      0,      1,      std::size_t(ranks) - 1, std::size_t(ranks), kBlock - 1, kBlock, kBlock + 1,
      104729, 1000000};
}

class Layouts : public testing::TestWithParam<std::string> {};

TEST_P(Layouts, AllReducesAreRight) {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    const std::vector<int> host = hosts(GetParam(), ranks);
    for (const Algorithm& algorithm : all_reduce_algorithms()) {
      if (!algorithm.refusal(host).empty()) continue;
      for (const std::size_t count : counts(ranks)) {
        Request r = request(host, {2 * kBlock, 2 * kBlock + count});
        r.rotation = int(count % 3);
        r.mean = count % 2 == 0;
        if (!r.mean) r.op = ReduceOp::kProduct;
        r.space = count % 4 < 2 ? Space::kGradient : Space::kExchange;
        ASSERT_EQ(verify(algorithm.make(r), Goal::kSumEverywhere, r.space), "")
            << algorithm.name << ", " << ranks << " ranks, " << count;
      }
    }
  }
}

// Plans with small chunks, which give each lane several successive segments, are right.
TEST_P(Layouts, AllReducesInManySegmentsAreRight) {
  for (const int ranks : {2, 3, 5, 6, 8}) {
    const std::vector<int> host = hosts(GetParam(), ranks);
    for (const Algorithm& algorithm : all_reduce_algorithms()) {
      if (!algorithm.refusal(host).empty()) continue;
      for (const std::size_t blocks : {17, 150}) {
        Request r = request(host, {5, 5 + blocks * kBlock});
        r.chunk_bytes = kBlock * sizeof(float);
        r.mean = true;
        ASSERT_EQ(verify(algorithm.make(r), Goal::kSumEverywhere), "")
            << algorithm.name << ", " << ranks << " ranks, " << blocks << " blocks";
      }
    }
  }
}

// Plans that run the optimizer's update on whole sums are right.
TEST_P(Layouts, UpdatesAreRight) {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    const std::vector<int> host = hosts(GetParam(), ranks);
    for (const Algorithm& algorithm : all_reduce_algorithms()) {
      if (!algorithm.updates || !algorithm.refusal(host).empty()) continue;
      for (const std::size_t count : counts(ranks)) {
        Request r = request(host, {kBlock, kBlock + count});
        r.rotation = int(count % 5), r.update = true;
        if (count > 20 * kBlock) r.chunk_bytes = kBlock * sizeof(float);
        ASSERT_EQ(verify(algorithm.make(r), Goal::kUpdateEverywhere), "")
            << algorithm.name << ", " << ranks << " ranks, " << count;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Verifier, Layouts, testing::ValuesIn(kLayouts),
                         [](const auto& layout) { return layout.param; });

TEST(Verifier, AcceptsDirectPlansOfOneHost) {
  for (int ranks = 1; ranks <= 17; ++ranks)
    for (const std::size_t count : counts(ranks)) {
      Request r = request(ranks, {kBlock, kBlock + count});
      r.rotation = int(count % 5);
      EXPECT_EQ(verify(direct_all_reduce(r), Goal::kSumEverywhere), "");
      EXPECT_EQ(verify(direct_reduce_scatter(r), Goal::kSumOfMySlice), "");
      r.mean = true;
      EXPECT_EQ(verify(direct_all_reduce(r), Goal::kSumEverywhere), "");
      EXPECT_EQ(verify(direct_reduce_scatter(r), Goal::kSumOfMySlice), "");
      r.mean = false, r.squares = true;
      EXPECT_EQ(verify(direct_all_reduce(r), Goal::kSumEverywhere), "");
      EXPECT_EQ(verify(direct_reduce_scatter(r), Goal::kSumOfMySlice), "");
    }
}

// Returns the plans of all buckets of a step: all sums, then all updates, which read all norms.
StepPlan clipped_step(int ranks, bool fused) {
  StepPlan step;
  std::vector<int> sums;
  for (int bucket = 0; bucket < 4; ++bucket) {
    Request r =
        request(ranks, {std::size_t(bucket) * 5 * kBlock, std::size_t(bucket + 1) * 5 * kBlock});
    r.rotation = bucket, r.squares = fused;
    step.push_back({fused ? direct_reduce_scatter(r) : ring_all_reduce(r), {}, false});
    r.squares = false;
    if (!fused) step.push_back({local_squares(r), {int(step.size()) - 1}, false});
    sums.push_back(int(step.size()) - 1);
  }
  for (int bucket = 0; bucket < 4; ++bucket) {
    Request r =
        request(ranks, {std::size_t(bucket) * 5 * kBlock, std::size_t(bucket + 1) * 5 * kBlock});
    r.rotation = bucket;
    step.push_back({fused ? direct_update_and_store(r) : local_update(r), sums, false});
  }
  return step;
}

TEST(Verifier, AcceptsWhatIsHandedOut) {
  for (int ranks = 1; ranks <= 17; ++ranks)
    for (const std::size_t count : counts(ranks)) {
      Request r = request(ranks, {kBlock, kBlock + count});
      r.rotation = int(count % 5);
      EXPECT_EQ(verify(direct_all_gather(r), Goal::kOneEverywhere), "");
      EXPECT_EQ(verify({{direct_reduce_scatter(r), {}, false}, {direct_all_gather(r), {0}, false}},
                       Goal::kSumEverywhere),
                "");
      Request mean = r;
      mean.mean = true;
      EXPECT_EQ(
          verify({{direct_reduce_scatter(mean), {}, false}, {direct_all_gather(r), {0}, false}},
                 Goal::kSumEverywhere),
          "");
      for (const int root : {0, ranks / 2, ranks - 1}) {
        r.root = root;
        EXPECT_EQ(verify(direct_broadcast(r), Goal::kOneEverywhere), "");
      }
    }
}

TEST(Verifier, AcceptsStepsOfSeveralPlansInFlight) {
  for (int ranks = 1; ranks <= 9; ++ranks)
    for (const bool fused : {false, true})
      EXPECT_EQ(verify(clipped_step(ranks, fused), Goal::kUpdateEverywhere), "");
}

TEST(Verifier, AcceptsTwoPlansInTwoSpacesWithTheSameOffsets) {
  Request sums = request({0, 0, 1}, {0, 3000}), metrics = sums;
  metrics.space = Space::kExchange;
  metrics.dtype = DType::kFloat64;
  metrics.scratch = ring_scratch(sums);
  const StepPlan step{{ring_all_reduce(sums), {}, false}, {ring_all_reduce(metrics), {}, true}};
  EXPECT_EQ(verify(step, Goal::kSumEverywhere), "");
  EXPECT_EQ(verify(step, Goal::kSumEverywhere, Space::kExchange), "");
}

TEST(Verifier, TakesNoLongerForManyElements) {
  for (const std::string layout : {"equal", "unequal"}) {
    Request r = request(hosts(layout, 16), {0, 20'000'000});
    for (const Algorithm& algorithm : all_reduce_algorithms())
      if (algorithm.refusal(r.host).empty()) {
        EXPECT_EQ(verify(algorithm.make(r), Goal::kSumEverywhere), "") << algorithm.name;
      }
  }
}

// Returns the n-th step of this kind of a rank.
Step& find(Plan& plan, int rank, Action action, int nth = 0) {
  for (Lane& lane : plan.lanes[std::size_t(rank)])
    for (Step& step : lane)
      if (step.action == action && nth-- == 0) return step;
  throw std::logic_error("no such step");
}

struct Broken {
  std::string name, word;
  Goal goal;
  std::function<StepPlan()> make;
};

void PrintTo(const Broken& broken, std::ostream* out) {
  *out << broken.name;
}

StepPlan alone(Plan plan) {
  return {{std::move(plan), {}, false}};
}

// Returns a step of this plan, changed by `change`.
StepPlan changed(Plan plan, const std::function<void(Plan&)>& change) {
  change(plan);
  return alone(std::move(plan));
}

const Range kSubject{0, 6 * kBlock};
Plan direct() {
  return direct_all_reduce(request(3, kSubject));
}
Plan update() {
  Request r = request(3, kSubject);
  r.update = true;
  return direct_all_reduce(r);
}
Plan ring() {
  return ring_all_reduce(request(hosts("apart", 3), kSubject));
}
Plan one_shot() {
  return one_shot_all_reduce(request(3, kSubject));
}
// Returns a plan in which rank 0 copies its numbers to scratch and the others read them there. Rank
// 0 is not told when they have read them.
Plan shown_by_one() {
  Plan plan = collectives::empty_plan(request(3, {0, kBlock}), "shown", 1);
  plan.alternate = kBlock;
  const Operand shown{0, Space::kScratch, 0};
  plan.lanes[0][0] = {collectives::reduce(kBlock, {{0, Space::kGradient, 0}}, {shown}),
                      collectives::arrive()};
  for (const int rank : {1, 2})
    plan.lanes[std::size_t(rank)][0] = {
        collectives::await({0}, 1),
        collectives::reduce(kBlock, {shown}, {{rank, Space::kGradient, 0}})};
  return plan;
}
Plan near_ring() {
  return ring_all_reduce(request(3, kSubject));
}

const std::vector<Broken> kBroken{
    {"ReadsBeforeOthersArrive", "race: read", Goal::kSumEverywhere,
     [] { return changed(direct(), [](Plan& p) { find(p, 1, Action::kAwait).ranks = {1}; }); }},
    {"UpdatesBeforeOthersArrive", "race", Goal::kUpdateEverywhere,
     [] { return changed(update(), [](Plan& p) { find(p, 1, Action::kAwait).ranks = {1}; }); }},
    {"EndsWhileOthersRead", "ends before others have", Goal::kSumEverywhere,
     [] { return changed(direct(), [](Plan& p) { find(p, 1, Action::kAwait, 1).ranks = {1}; }); }},
    {"AwaitsWhatNeverComes", "deadlock", Goal::kSumEverywhere,
     [] { return changed(direct(), [](Plan& p) { find(p, 2, Action::kAwait, 1).phase = 3; }); }},
    {"AddsOneRankTwice", "incomplete or doubled", Goal::kUpdateEverywhere,
     [] {
       return changed(update(), [](Plan& p) { find(p, 0, Action::kReduce).from[1].rank = 0; });
     }},
    {"LeavesOneRankOut", "the sum is wrong", Goal::kSumEverywhere,
     [] {
       return changed(direct(), [](Plan& p) { find(p, 0, Action::kReduce).from.pop_back(); });
     }},
    {"ForgetsToStoreIntoOneRank", "the sum is wrong", Goal::kSumEverywhere,
     [] { return changed(direct(), [](Plan& p) { find(p, 0, Action::kReduce).to.pop_back(); }); }},
    {"AddsOneElementToTheNext", "numbers of different places", Goal::kSumOfMySlice,
     [] {
       return changed(direct_reduce_scatter(request(3, kSubject)),
                      [](Plan& p) { ++find(p, 0, Action::kReduce).from[1].offset; });
     }},
    {"HandsOutOneElementAsTheNext", "not one rank's number in all", Goal::kOneEverywhere,
     [] {
       return changed(direct_broadcast(request(3, kSubject)),
                      [](Plan& p) { ++find(p, 0, Action::kReduce).from[0].offset; });
     }},
    {"UpdatesTheNextWeight", "another place's weight|overlap in part", Goal::kUpdateEverywhere,
     [] {
       StepPlan step{{ring(), {}, false},
                     {local_update(request(hosts("apart", 3), {0, kBlock})), {0}, false}};
       Step copy = collectives::reduce(kBlock, {{0, Space::kGradient, 2 * kBlock}},
                                       {{0, Space::kGradient, 0}});
       auto& lane = step[1].plan.lanes[0][0];
       lane.insert(lane.begin(), copy);
       return step;
     }},
    {"HandsOutTwoRanksNumbers", "not one rank's number in all", Goal::kOneEverywhere,
     [] {
       return changed(direct_broadcast(request(3, kSubject)),
                      [](Plan& p) { find(p, 1, Action::kReduce).from[0].rank = 1; });
     }},
    {"HandsOutASum", "not one rank's number in all", Goal::kOneEverywhere,
     [] { return alone(direct()); }},
    {"LeavesASliceOut", "nobody has the whole sum", Goal::kSumOfMySlice,
     [] {
       return changed(direct_reduce_scatter(request(3, kSubject)), [](Plan& p) {
         std::erase_if(p.lanes[1][0], [](const Step& s) { return s.action == Action::kReduce; });
       });
     }},
    {"UpdatesOneElementTooFew", "the weight is not updated", Goal::kUpdateEverywhere,
     [] { return changed(update(), [](Plan& p) { --find(p, 2, Action::kReduce).count; }); }},
    {"UpdatesTwice", "updated twice", Goal::kUpdateEverywhere,
     [] {
       const Plan once = update();
       return StepPlan{{once, {}, false}, {once, {0}, false}};
     }},
    {"UpdatesInTwoPlansAtOnce", "race", Goal::kUpdateEverywhere,
     [] {
       return StepPlan{{update(), {}, false}, {update(), {}, false}};
     }},
    {"UpdatesFromSumsThatAreNotThere", "incomplete or doubled", Goal::kUpdateEverywhere,
     [] { return alone(local_update(request(3, kSubject))); }},
    {"UpdatesBesideTheSumThatItNeeds", "race|incomplete", Goal::kUpdateEverywhere,
     [] {
       return StepPlan{{direct(), {}, false}, {local_update(request(3, kSubject)), {}, false}};
     }},
    {"UpdatesBeforeAllNormsAreThere", "norms|race|read before write", Goal::kUpdateEverywhere,
     [] {
       StepPlan step = clipped_step(3, true);
       step.back().after.pop_back();
       step.back().after.erase(step.back().after.begin());
       return step;
     }},
    {"TellsItsNormsToNobody", "read before write", Goal::kUpdateEverywhere,
     [] {
       StepPlan step = clipped_step(3, true);
       auto& lane = step[0].plan.lanes[0][0];
       std::erase_if(lane, [](const Step& s) {
         return s.action == Action::kReduce && s.from[0].space == Space::kNorms;
       });
       return step;
     }},
    {"SquaresHalfASum", "squares of an incomplete", Goal::kNothing,
     [] { return alone(local_squares(request(3, kSubject))); }},
    {"SquaresABlockTwice", "two sums of squares", Goal::kNothing,
     [] {
       const Plan squares = local_squares(request(3, kSubject));
       return StepPlan{{direct(), {}, false}, {squares, {0}, false}, {squares, {1}, false}};
     }},
    {"WritesWeightsWhoseSquaresAreTaken", "race", Goal::kNothing,
     [] {
       const Request r = request(2, {0, kBlock});
       Plan write = collectives::empty_plan(r, "write", 1);
       write.lanes[0][0] = {collectives::arrive()};
       write.lanes[1][0] = {
           collectives::await({0}, 1),
           collectives::reduce(kBlock, {{1, Space::kGradient, 0}}, {{0, Space::kWeight, 0}})};
       return StepPlan{
           {direct_all_reduce(r), {}, false}, {local_squares(r), {0}, false}, {write, {0}, false}};
     }},
    {"ScalesBeforeTheSumIsWhole", "scale of an incomplete", Goal::kSumEverywhere,
     [] {
       return changed(ring(),
                      [](Plan& p) { find(p, 0, Action::kReduce).epilogue = Epilogue::kScale; });
     }},
    {"ScalesAllButOneChunk", "the sum is wrong", Goal::kSumEverywhere,
     [] {
       Request mean = request(3, kSubject);
       mean.mean = true;
       return changed(ring_all_reduce(mean), [](Plan& p) {
         for (Step& s : p.lanes[0][0]) s.epilogue = Epilogue::kNone;
       });
     }},
    {"AddsBeforeTheMessageIsThere", "read before write", Goal::kSumEverywhere,
     [] {
       return changed(ring(), [](Plan& p) {
         Lane& lane = p.lanes[1][0];
         std::swap(lane[3], lane[4]);  // the first wait and its sum
       });
     }},
    {"SendsToTheWrongRank", "deadlock|different places", Goal::kSumEverywhere,
     [] { return changed(ring(), [](Plan& p) { find(p, 0, Action::kPostSend).peer = 2; }); }},
    {"SendsWithoutAReader", "deadlock|never received", Goal::kNothing,
     [] {
       return changed(ring(), [](Plan& p) {
         for (auto& lanes : p.lanes) lanes.assign(1, {});
         Step send;
         send.action = Action::kPostSend, send.count = 1, send.peer = 1;
         send.from = {{0, Space::kGradient, 0}};
         Step wait;
         wait.action = Action::kWait, wait.post = 0;
         p.lanes[0][0] = {send, wait};
       });
     }},
    {"ReceivesFewerThanAreSent", "another length", Goal::kSumEverywhere,
     [] { return changed(ring(), [](Plan& p) { --find(p, 0, Action::kPostReceive).count; }); }},
    {"OverwritesWhatItIsSending", "race: write of what another is reading", Goal::kSumEverywhere,
     [] {
       return changed(ring(), [](Plan& p) {
         Step copy;
         copy.count = 2 * kBlock;
         const Step send = find(p, 0, Action::kPostSend);
         copy.count = send.count, copy.from = send.from, copy.to = send.from;
         p.lanes[0][0].insert(p.lanes[0][0].begin() + 2, copy);
         for (Step& s : p.lanes[0][0])
           if (s.post >= 2) ++s.post;
       });
     }},
    {"ReceivesIntoWhatIsStillAdded", "race", Goal::kSumEverywhere,
     [] {
       Request a = request(hosts("apart", 3), kSubject), b = a;
       b.subject = {kSubject.end, 2 * kSubject.end};  // another range, the same scratch
       return StepPlan{{ring_all_reduce(a), {}, false}, {ring_all_reduce(b), {}, false}};
     }},
    {"PostsAndNeverWaits", "never waited for", Goal::kSumEverywhere,
     [] { return changed(ring(), [](Plan& p) { p.lanes[0][0].resize(3); }); }},
    {"WaitsForNoMessage", "a wait for no message", Goal::kSumEverywhere,
     [] { return changed(ring(), [](Plan& p) { find(p, 0, Action::kWait).post = 2; }); }},
    {"TalksWithinAHost", "a message within a host", Goal::kSumEverywhere,
     [] { return changed(ring(), [](Plan& p) {
            p.host = {0, 0, 1};
          }); }},
    {"ReadsTheMemoryOfAnotherHost", "memory of another host", Goal::kSumEverywhere,
     [] {
       return changed(ring(), [](Plan& p) {
         find(p, 0, Action::kReduce).from[1] = {1, Space::kGradient, 0};
       });
     }},
    {"AwaitsARankOfAnotherHost", "an await of a rank of another host", Goal::kSumEverywhere,
     [] {
       return changed(ring(), [](Plan& p) {
         Step await;
         await.action = Action::kAwait, await.ranks = {1}, await.phase = 1;
         p.lanes[0][0].push_back(await);
       });
     }},
    {"EndsBeforeItsNeighbourHasRead", "ends before others have", Goal::kSumEverywhere,
     [] { return changed(near_ring(), [](Plan& p) { p.lanes[0][0].pop_back(); }); }},
    {"ReadsItsNeighbourTooEarly", "race", Goal::kSumEverywhere,
     [] { return changed(near_ring(), [](Plan& p) { --find(p, 1, Action::kAwait, 1).phase; }); }},
    {"WritesHalfOverWhatItReads", "overlap in part", Goal::kSumEverywhere,
     [] {
       return changed(direct(), [](Plan& p) { find(p, 0, Action::kReduce).to[1].offset += 1; });
     }},
    {"MixesNormsAndGradients", "norms and other numbers", Goal::kSumEverywhere,
     [] {
       return changed(direct(),
                      [](Plan& p) { find(p, 0, Action::kReduce).from[1].space = Space::kNorms; });
     }},
    {"LeavesScratchToBeReadAndWritesItAgain", "ends before others have read its memory",
     Goal::kSumEverywhere, [] { return changed(one_shot(), [](Plan& p) { p.alternate = 0; }); }},
    {"AlternatesWithinWhatItReads", "scratch of two executions overlaps", Goal::kSumEverywhere,
     [] { return changed(one_shot(), [](Plan& p) { p.alternate -= 1; }); }},
    {"SharesScratchThatAlternates", "plan p uses the scratch of plan q", Goal::kSumEverywhere,
     [] {
       StepPlan step{{one_shot(), {}, false}, {one_shot(), {0}, false}};
       step[0].plan.name = "q";
       return step;
     }},
    {"RunsAheadOfWhoReadsItsScratch", "what another is reading: plan shown, rank 0",
     Goal::kOneEverywhere,
     [] { return changed(shown_by_one(), [](Plan& p) { p.name = "shown"; }); }},
    {"ComesAfterItself", "not an earlier one", Goal::kSumEverywhere,
     [] {
       return StepPlan{{direct(), {0}, false}};
     }},
};

class Refused : public testing::TestWithParam<Broken> {};

TEST_P(Refused, WithTheRightWord) {
  const std::string why = verify(GetParam().make(), GetParam().goal);
  std::string words = GetParam().word + "|";
  bool found = false;
  for (std::size_t end = 0; (end = words.find('|')) != std::string::npos; words.erase(0, end + 1))
    found |= why.find(words.substr(0, end)) != std::string::npos;
  EXPECT_TRUE(found) << "wanted: " << GetParam().word << "\ngot: " << why;
}

INSTANTIATE_TEST_SUITE_P(Verifier, Refused, testing::ValuesIn(kBroken),
                         [](const auto& broken) { return broken.param.name; });

// The verifier names a plan that is wrong only when it is executed again. With the readers'
// arrivals that plan is right.
TEST(Verifier, ExecutesScratchThatAlternatesAgainAndAgain) {
  Plan plan = shown_by_one();
  EXPECT_THAT(verify(plan, Goal::kOneEverywhere), HasSubstr("executed again and again"));
  for (const int rank : {1, 2}) {
    plan.lanes[std::size_t(rank)][0].insert(plan.lanes[std::size_t(rank)][0].begin(),
                                            collectives::arrive());
    plan.lanes[0][0].push_back(collectives::await({rank}, 1));
  }
  EXPECT_EQ(verify(plan, Goal::kOneEverywhere), "");
  plan.alternate = 0;  // the early arrival does not cover this execution
  EXPECT_THAT(verify(plan, Goal::kOneEverywhere), HasSubstr("ends before others have read"));
}

TEST(Verifier, SaysWhere) {
  Plan plan = direct();
  find(plan, 1, Action::kAwait).ranks = {1};
  EXPECT_THAT(verify(plan, Goal::kSumEverywhere),
              HasSubstr("plan p, rank 1 lane 0 step 2 (reduce)"));
}

}  // namespace verifier_test
}  // namespace lockstep::test
