// SPDX-License-Identifier: MIT
#include "engine/report/event_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "engine/base/error.h"
#include "test/engine/checkpoint/scenario.h"

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

// Creates a FIFO and reads from it.
class Pipe {
 public:
  explicit Pipe(const std::string& path) : path_(path) {
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
  }
  ~Pipe() { close(); }
  void open() { file_ = ::open(path_.c_str(), O_RDONLY | O_NONBLOCK); }
  void close() {
    if (file_ >= 0) ::close(file_);
    file_ = -1;
  }
  std::string read() const {  // returns what the FIFO holds
    std::string all(1 << 17, 0);
    const ssize_t got = ::read(file_, all.data(), all.size());
    all.resize(std::size_t(std::max<ssize_t>(got, 0)));
    return all;
  }

 private:
  std::string path_;
  int file_ = -1;
};

constexpr int kMoreThanAPipeHolds = 3000;  // events, each at least 60 bytes

void write_steps(EventLog& events, int count) {
  for (int step = 0; step < count; ++step) events.write("step", {{"step", step}});
}

TEST(EventLogTest, AReaderThatHasGoneHoldsNobodyUp) {
  const TemporaryFolder folder;
  Pipe pipe(folder.path() + "/pipe");
  const auto handler = ::signal(SIGPIPE, SIG_IGN);
  LogLines lines;
  {
    pipe.open();
    EventLog events(folder.path() + "/pipe", lines.log());
    write_steps(events, 1);
    EXPECT_THAT(pipe.read(), HasSubstr("\"step\":0"));
    pipe.close();
    write_steps(events, kMoreThanAPipeHolds);
    EXPECT_TRUE(lines.contain("no process reads it; events are lost, training goes on"));
    pipe.open();  // receives only subsequent events
    events.write("step", {{"step", 7}});
    EXPECT_EQ(json::parse(pipe.read()).at("step"), 7);
  }
  ::signal(SIGPIPE, handler);
}

TEST(EventLogTest, AFifoThatNobodyReadsYetIsNoError) {
  const TemporaryFolder folder;
  Pipe pipe(folder.path() + "/pipe");
  LogLines lines;
  EventLog events(folder.path() + "/pipe", lines.log());
  write_steps(events, 1);
  EXPECT_TRUE(lines.contain("no process reads it")) << lines.all();
  pipe.open();
  events.write("step", {{"step", 7}});
  EXPECT_EQ(json::parse(pipe.read()).at("step"), 7);
}

TEST(EventLogTest, AReaderThatIsSlowLosesNothing) {
  const TemporaryFolder folder;
  Pipe pipe(folder.path() + "/pipe");
  pipe.open();
  LogLines lines;
  EventLog events(folder.path() + "/pipe", lines.log());
  write_steps(events, kMoreThanAPipeHolds);
  std::string all;
  for (int step = kMoreThanAPipeHolds; step < kMoreThanAPipeHolds + 20; ++step) {
    all += pipe.read();
    events.write("step", {{"step", step}});
  }
  all += pipe.read();
  std::istringstream said(all);
  std::int64_t expected = 0;
  for (std::string line; std::getline(said, line); ++expected)
    ASSERT_EQ(json::parse(line).at("step"), expected);
  EXPECT_EQ(expected, kMoreThanAPipeHolds + 20);
  EXPECT_EQ(lines.all(), "");
}

TEST(EventLogTest, AReaderThatStandsStillHoldsNobodyUp) {
  const TemporaryFolder folder;
  Pipe pipe(folder.path() + "/pipe");
  pipe.open();
  LogLines lines;
  const auto begin = engine::Clock::now();
  {
    EventLog events(folder.path() + "/pipe", lines.log());
    write_steps(events, 10 * kMoreThanAPipeHolds);
    EXPECT_LT(engine::Clock::now() - begin, std::chrono::seconds(20));
    EXPECT_TRUE(lines.contain("its reader stands still; events are lost, training goes on"));
  }
  EXPECT_LT(engine::Clock::now() - begin, std::chrono::seconds(25));
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
