// SPDX-License-Identifier: MIT
#include "engine/train/event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "engine/base/error.h"
#include "test/engine/train/scenario.h"

namespace lockstep::test {
namespace event_log_test {

using engine::EventLog;
using nlohmann::json;
using testing::HasSubstr;

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST(EventLogTest, EachEventIsOneJsonObjectOnALine) {
  LogLines lines;
  std::stringstream out;
  EventLog events(out, lines.log());
  events.write("step", {{"step", 3},
                        {"loss", 0.5},
                        {"examples", std::size_t{1} << 60},
                        {"batch", 64},
                        {"note", "a\n\"b\""}});
  events.write("end", {{"step", 4}});
  std::string first, second, rest;
  ASSERT_TRUE(std::getline(out, first) && std::getline(out, second));
  EXPECT_FALSE(std::getline(out, rest));
  const json event = json::parse(first);
  EXPECT_EQ(event.at("event"), "step");
  EXPECT_EQ(event.at("step"), 3);
  EXPECT_EQ(event.at("loss"), 0.5);
  EXPECT_EQ(event.at("examples"), std::size_t{1} << 60);
  EXPECT_EQ(event.at("batch"), 64);
  EXPECT_EQ(event.at("note"), "a\n\"b\"");
  EXPECT_GT(event.at("time").get<double>(), 1.7e9);
  EXPECT_EQ(json::parse(second).size(), 3u);
}

TEST(EventLogTest, WhatJsonCannotSayIsStillALine) {
  LogLines lines;
  std::stringstream out;
  EventLog events(out, lines.log());
  events.write("x", {{"nan", std::numeric_limits<double>::quiet_NaN()},
                     {"inf", std::numeric_limits<double>::infinity()},
                     {"text", "\xff"}});
  const json event = json::parse(out.str());
  EXPECT_TRUE(event.at("nan").is_null());
  EXPECT_TRUE(event.at("inf").is_null());
  EXPECT_EQ(event.at("text"), "\xef\xbf\xbd");
}

TEST(EventLogTest, EveryLineIsWrittenAtOnceAndAppended) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  LogLines lines;
  {
    EventLog events(path, lines.log());
    events.write("step", {{"step", 1}});
    EXPECT_EQ(lines_of(path).size(), 1u);
  }
  EventLog events(path, lines.log());
  events.write("step", {{"step", 2}});
  ASSERT_EQ(lines_of(path).size(), 2u);
  EXPECT_EQ(json::parse(lines_of(path)[1]).at("step"), 2);
}

TEST(EventLogTest, ALineThatWasCutOffDoesNotSpoilTheNext) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  std::ofstream(path) << "{\"event\":\"st";
  LogLines lines;
  EventLog events(path, lines.log());
  events.write("step", {{"step", 1}});
  ASSERT_EQ(lines_of(path).size(), 2u);
  EXPECT_EQ(json::parse(lines_of(path)[1]).at("step"), 1);
}

TEST(EventLogTest, AFullDiskIsReportedOnceAndDoesNotStopTheRun) {
  LogLines lines;
  EventLog events("/dev/full", lines.log());
  for (int step = 0; step < 3; ++step) events.write("step", {{"step", step}});
  EXPECT_EQ(lines.all(),
            "cannot write /dev/full: No space left on device; events are lost, training goes on\n");
}

TEST(EventLogTest, ItGoesOnWhenThereIsRoomAgain) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  LogLines lines;
  EventLog events(path, lines.log());
  events.write("step", {{"step", 1}});
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{70, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  events.write("step", {{"step", 2}});  // a part of it fits
  events.write("step", {{"step", 3}});
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  events.write("step", {{"step", 4}});
  const auto written = lines_of(path);
  ASSERT_EQ(written.size(), 3u);
  EXPECT_EQ(json::parse(written[0]).at("step"), 1);
  EXPECT_FALSE(json::accept(written[1]));
  EXPECT_EQ(json::parse(written[2]).at("step"), 4);
  EXPECT_TRUE(lines.contain("File too large")) << lines.all();
}

TEST(EventLogTest, WithoutAPathNothingIsWritten) {
  LogLines lines;
  EventLog events("", lines.log());
  events.write("step", {{"step", 1}});
  EXPECT_EQ(lines.all(), "");
}

TEST(EventLogTest, AFileThatCannotBeOpenedIsAnErrorAtOnce) {
  LogLines lines;
  try {
    EventLog events("/none/metrics.jsonl", lines.log());
    ADD_FAILURE() << "no error";
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kIo);
    EXPECT_THAT(error.what(), HasSubstr("/none/metrics.jsonl: No such file or directory"));
  }
}

}  // namespace event_log_test
}  // namespace lockstep::test
