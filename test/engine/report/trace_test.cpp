// SPDX-License-Identifier: MIT
#include "engine/report/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "engine/report/profile.h"

namespace lockstep::test {
namespace trace_test {

using engine::Clock;
using engine::Profile;
using engine::Timeline;
using nlohmann::json;
using Lane = Timeline::Lane;

Clock::time_point later(Clock::time_point from, int microseconds) {
  return from + std::chrono::microseconds(microseconds);
}

std::vector<json> spans_of(const json& document) {
  std::vector<json> spans;
  for (const json& event : document.at("traceEvents")) {
    if (event.at("ph") == "X") spans.push_back(event);
  }
  return spans;
}

TEST(TimelineTest, OnlyWhatBeginsInRecordedStepsIsKeptWheneverItEnds) {
  Timeline timeline(3);
  const int kind = timeline.kind({Lane::kComputing, "a", "b", {}});
  EXPECT_EQ(timeline.kind({Lane::kComputing, "a", "b", {}}), kind);
  timeline.reserve(10, 2);
  const auto before = Clock::now();
  timeline.add(kind, before, later(before, 1));  // no step has begun
  EXPECT_FALSE(timeline.records());
  timeline.begin_step(7);
  const auto inside = Clock::now();
  timeline.add(kind, before, later(inside, 1));  // began before the step
  EXPECT_TRUE(timeline.records());
  timeline.end_steps();
  EXPECT_FALSE(timeline.records());
  std::this_thread::sleep_for(std::chrono::microseconds(1));
  const auto after = Clock::now();
  timeline.add(kind, after, later(after, 1));   // begins too late
  timeline.add(kind, inside, later(after, 9));  // ends late, which is allowed
  timeline.begin_step(8);
  const auto again = Clock::now();
  timeline.add(kind, again, later(again, 1));
  ASSERT_EQ(timeline.spans().size(), 2u);
  EXPECT_EQ(timeline.steps().size(), 2u);
  EXPECT_EQ(timeline.left_out(), 0u);
}

TEST(TimelineTest, WhatDoesNotFitIsCounted) {
  Timeline timeline(0);
  const int kind = timeline.kind({Lane::kComputing, "a", "b", {}});
  timeline.reserve(3, 1);
  timeline.begin_step(0);
  const auto now = Clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 5; ++k) timeline.add(kind, now, later(now, 1));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(timeline.spans().size(), 3u);
  EXPECT_EQ(timeline.left_out(), 17u);
}

// Records all calls as text.
class Listener final : public engine::Profiler {
 public:
  Name name(const std::string& text) override { return {&*names_.insert(text).first}; }
  void push(Name name) override { told.push_back("push " + text_of(name)); }
  void push(const char* text) override { told.push_back(std::string("push ") + text); }
  void pop() override { told.push_back("pop"); }
  std::uint64_t start(Name name) override {
    told.push_back("start " + text_of(name));
    return ++ranges_;
  }
  void end(std::uint64_t range) override { told.push_back("end " + std::to_string(range)); }
  std::vector<std::string> told;

 private:
  static std::string text_of(Name name) { return *static_cast<const std::string*>(name.handle); }
  std::set<std::string> names_;
  std::uint64_t ranges_ = 0;
};

TEST(TimelineTest, AProfilerHearsOfBothEndsOfEachSpanWhetherItIsRecordedOrNot) {
  Listener listener;
  Timeline timeline(0);
  const int step = timeline.kind({Lane::kComputing, "step", "step", {}});
  const int layer = timeline.kind({Lane::kComputing, "forward", "conv1", {}});
  EXPECT_FALSE(timeline.wanted());
  timeline.begin(step, 7);
  timeline.tell(&listener);
  const int bucket = timeline.kind({Lane::kCommunication, "bucket", "bucket 0 (w)", {}});
  EXPECT_TRUE(timeline.wanted());
  EXPECT_FALSE(timeline.records());
  const auto now = Clock::now();
  timeline.begin(step, 7);
  timeline.begin(layer);
  timeline.begin(bucket);
  timeline.add(layer, now, now);
  timeline.add(step, now, now);
  timeline.add(bucket, now, now);
  timeline.add(bucket, now, now);  // began before the listener was set
  EXPECT_EQ(listener.told, (std::vector<std::string>{"push step 7", "push forward: conv1",
                                                     "start bucket 0 (w)", "pop", "pop", "end 1"}));
  EXPECT_TRUE(timeline.spans().empty());
}

TEST(TimelineTest, WhatNobodyEndsIsEndedForTheProfilerOnce) {
  Listener listener;
  Timeline timeline(0);
  timeline.tell(&listener);
  const int layer = timeline.kind({Lane::kComputing, "backward", "conv1", {}});
  const int bucket = timeline.kind({Lane::kCommunication, "bucket", "bucket 0", {}});
  timeline.begin(bucket);
  timeline.begin(layer);
  timeline.begin(layer);
  listener.told.clear();
  timeline.end_ranges();
  EXPECT_EQ(listener.told, (std::vector<std::string>{"end 1", "pop", "pop"}));
  timeline.end_ranges();
  EXPECT_EQ(listener.told.size(), 3u);
}

TEST(ProfileTest, TheFirstTenStepsAreLeftOutWhereTheRunIsLongEnough) {
  Profile profile(5);
  auto recorded = [&](std::int64_t first, std::int64_t end) {
    profile.choose(first, end);
    std::vector<std::int64_t> steps;
    for (std::int64_t step = first; step < end; ++step) {
      if (profile.records(step)) steps.push_back(step);
    }
    return steps;
  };
  EXPECT_THAT(recorded(0, 100), testing::ElementsAre(10, 11, 12, 13, 14));
  EXPECT_THAT(recorded(40, 100), testing::ElementsAre(50, 51, 52, 53, 54));
  EXPECT_THAT(recorded(0, 7), testing::ElementsAre(2, 3, 4, 5, 6));
  EXPECT_THAT(recorded(0, 3), testing::ElementsAre(0, 1, 2));
}

TEST(TraceTest, IsValidJsonWithTimesInMicrosecondsWhateverNamesHold) {
  Timeline timeline(2);
  const std::string odd = "a \"b\"\\ \n \t \x01 \xff ü";
  const int plain = timeline.kind({Lane::kComputing, "forward", "conv1", {}});
  const int named = timeline.kind({Lane::kComputing, "forward", odd, R"({"bytes":12})"});
  timeline.reserve(10, 2);
  timeline.begin_step(41);
  const auto now = Clock::now();
  timeline.add(plain, now, now + std::chrono::nanoseconds(1234567));
  timeline.begin_step(42);
  const auto next = std::max(Clock::now(), now + std::chrono::nanoseconds(1));
  timeline.add(named, next, next);
  const std::int64_t shift = 5000 - timeline.spans()[0].begin;
  const json document = json::parse(
      engine::trace_document({engine::trace_events(timeline, shift, "rank \"2\""), ""}));
  const std::vector<json> spans = spans_of(document);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].at("ts").get<double>(), 5.0);
  EXPECT_EQ(spans[0].at("dur").get<double>(), 1234.567);
  EXPECT_EQ(spans[0].at("name"), "conv1");
  EXPECT_EQ(spans[0].at("cat"), "forward");
  EXPECT_EQ(spans[0].at("pid"), 2);
  EXPECT_EQ(spans[0].at("args"), json({{"step", 41}}));
  EXPECT_EQ(spans[1].at("args"), json({{"step", 42}, {"bytes", 12}}));
  EXPECT_EQ(spans[1].at("dur").get<double>(), 0);
  const std::string name = spans[1].at("name");
  EXPECT_TRUE(name.starts_with("a \"b\"\\ \n \t \x01 ")) << name;
  std::map<std::string, json> said;
  for (const json& event : document.at("traceEvents")) {
    if (event.at("ph") == "M") said[event.at("name")] = event.at("args");
  }
  EXPECT_EQ(said.at("process_name").at("name"), "rank \"2\"");
  EXPECT_EQ(said.at("process_sort_index").at("sort_index"), 2);
  EXPECT_EQ(said.at("thread_name").at("name"), "computing");
}

TEST(TraceTest, OuterSpansComeFirstAndOverlappingCommunicationHasLanesOfItsOwn) {
  Timeline timeline(0);
  const int outer = timeline.kind({Lane::kComputing, "step", "outer", {}});
  const int inner = timeline.kind({Lane::kComputing, "step", "inner", {}});
  const int bucket = timeline.kind({Lane::kCommunication, "bucket", "bucket", {}});
  timeline.reserve(10, 1);
  timeline.begin_step(0);
  const auto now = Clock::now();
  timeline.add(inner, now, later(now, 3));  // ended first, so it was reported first
  timeline.add(outer, now, later(now, 9));
  timeline.add(bucket, later(now, 2), later(now, 6));
  timeline.add(bucket, later(now, 1), later(now, 4));
  timeline.add(bucket, later(now, 4), later(now, 5));
  const std::int64_t shift = -timeline.spans()[0].begin;
  std::vector<std::string> seen;
  for (const json& span :
       spans_of(json::parse(engine::trace_document({engine::trace_events(timeline, shift, "")})))) {
    seen.push_back(fmt::format("{} {} {}", span.at("name").get<std::string>(),
                               span.at("tid").get<int>(), span.at("ts").get<double>()));
  }
  EXPECT_THAT(seen, testing::ElementsAre("outer 0 0", "inner 0 0", "bucket 1 1", "bucket 2 2",
                                         "bucket 1 4"));
}

TEST(TraceTest, NothingRecordedIsAnEmptyTrace) {
  EXPECT_EQ(json::parse(engine::trace_document({"", ""})).at("traceEvents"), json::array());
}

}  // namespace trace_test
}  // namespace lockstep::test
