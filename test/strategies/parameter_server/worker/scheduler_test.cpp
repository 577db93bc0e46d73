// SPDX-License-Identifier: MIT
// The chief answers its followers, whatever they send.
#include "strategies/parameter_server/worker/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "test/fuzz/damage.h"
#include "test/strategies/parameter_server/server/service_calls.h"

namespace lockstep::test {
namespace scheduler_test {

using namespace strategies;
using engine::Code;
using testing::HasSubstr;

constexpr int kWorkers = 3;
constexpr std::int64_t kSteps = 1000;

// Opens a job of three workers, of which the chief has the first, and begins a segment.
class SchedulerTest : public testing::Test {
 protected:
  SchedulerTest() {
    chief_.open("a job", 7);
    chief_.lead();
    Segment segment;
    segment.number = 1;
    segment.generation = 7;
    segment.work = {.examples = 100, .global_batch = 10, .steps = kSteps, .run_steps = kSteps};
    chief_.begin(segment);
  }
  static AttachRequest attach(std::uint32_t worker, std::uint32_t workers = 1) {
    AttachRequest request;
    request.set_worker(worker);
    request.set_workers(workers);
    request.set_job("a job");
    return request;
  }
  static NextRequest next(std::uint32_t worker, std::uint64_t incarnation, std::uint64_t number) {
    NextRequest request;
    request.set_worker(worker);
    request.set_incarnation(incarnation);
    request.set_segment(1);
    request.set_call(number);
    return request;
  }
  std::string refused(const AttachRequest& request) {
    const rpc::Reply reply = call(chief_, "Attach", message_of(request));
    EXPECT_EQ(reply.code, Code::kInvalid);
    return reply.why;
  }

  Scheduler chief_{
      {.workers = kWorkers, .local = 1, .log = engine::Log("", engine::Log::Level::kError)}};
};

TEST_F(SchedulerTest, TakesTheWorkersThatFollowAndNoOthers) {
  constexpr std::uint32_t kMost = ~std::uint32_t(0);
  for (const auto& [worker, workers] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{
           {0, 1}, {3, 1}, {1, 3}, {1, 0}, {kMost, 1}, {1, kMost}, {kMost, kMost}, {1u << 31, 1}})
    EXPECT_THAT(refused(attach(worker, workers)), HasSubstr("none of the 2 of this job"))
        << worker << " " << workers;
  ask<AttachReply>(chief_, "Attach", attach(1));
  EXPECT_THAT(refused(attach(1, 2)), HasSubstr("not those of one process"));
  ask<AttachReply>(chief_, "Attach", attach(2));
  EXPECT_TRUE(chief_.missing().empty());
}

// A repeated call gets the lost answer again, with the same step.
TEST_F(SchedulerTest, ACallThatIsRepeatedIsAnsweredAsBefore) {
  const auto incarnation = ask<AttachReply>(chief_, "Attach", attach(1)).incarnation();
  const auto first = ask<NextReply>(chief_, "Next", next(1, incarnation, 1));
  const auto again = ask<NextReply>(chief_, "Next", next(1, incarnation, 1));
  const auto second = ask<NextReply>(chief_, "Next", next(1, incarnation, 2));
  EXPECT_EQ(first.step(), again.step());
  EXPECT_EQ(second.step(), first.step() + 1);
}

TEST_F(SchedulerTest, LivesThroughAnyBytes) {
  const auto incarnation = ask<AttachReply>(chief_, "Attach", attach(1)).incarnation();
  NextRequest request = next(1, incarnation, 1);
  for (const std::int64_t step : {0, 3, 5}) request.add_done(step);
  SegmentRequest segment;
  segment.set_worker(1);
  segment.set_incarnation(incarnation);
  segment.set_fit(1);
  HeartbeatRequest heartbeat;
  heartbeat.set_worker(1);
  heartbeat.set_incarnation(incarnation);
  const std::vector<std::pair<std::string, rpc::Message>> seeds = {
      {"Attach", message_of(attach(1, 1))},
      {"Next", message_of(request)},
      {"NextSegment", message_of(segment)},
      {"Heartbeat", message_of(heartbeat)}};
  std::atomic<std::uint64_t> answers = 0, refusals = 0;
  for (std::uint64_t number = 0; number < kInputs; ++number) {
    const auto& [method, message] = seeds[number % seeds.size()];
    chief_.call(method, {damaged(message.head, number), {}}, nullptr, [&](const rpc::Reply& reply) {
      ++answers;
      refusals += !reply.ok();
    });
  }
  // Attaching anew discards the effects of damaged messages; the new worker makes the steps.
  const auto fresh = ask<AttachReply>(chief_, "Attach", attach(1)).incarnation();
  segment.set_incarnation(fresh);
  EXPECT_EQ(ask<SegmentReply>(chief_, "NextSegment", segment).what(), SegmentReply::STEPS);
  const auto until = engine::Clock::now() + std::chrono::seconds(60);
  while (answers < kInputs && engine::Clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(answers, kInputs);
  EXPECT_GT(refusals, kInputs / 4);
  EXPECT_LT(refusals, kInputs);
}

}  // namespace scheduler_test
}  // namespace lockstep::test
