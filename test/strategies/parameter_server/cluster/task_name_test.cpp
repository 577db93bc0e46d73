// SPDX-License-Identifier: MIT
// Full and partial names of tasks and devices.
#include "strategies/parameter_server/cluster/task_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/random.h"

namespace lockstep::test {
namespace task_name_test {

using namespace strategies;

std::string error_of(std::string_view text) {
  try {
    parse_task_name(text);
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kInvalid);
    return error.what();
  }
  return "no error";
}

TEST(TaskName, PartsAreReadAsFarAsTheyAreSaid) {
  const engine::DeviceId cpu{"cpu", 0};
  EXPECT_EQ(parse_task_name("/job:ps/task:1/cpu:0"), (TaskName{"ps", 1, cpu}));
  EXPECT_EQ(parse_task_name("/job:worker"), TaskName{"worker"});
  EXPECT_EQ(parse_task_name("/task:12"), (TaskName{"", 12}));
  EXPECT_EQ(parse_task_name("/gpu:3"), (TaskName{"", std::nullopt, engine::DeviceId{"gpu", 3}}));
  EXPECT_EQ(parse_task_name("/cpu"), (TaskName{"", std::nullopt, cpu}));
  EXPECT_EQ(parse_task_name("/cpu:0/task:1/job:ps"), (TaskName{"ps", 1, cpu}));
  EXPECT_EQ(parse_task_name(""), TaskName{});
}

TEST(TaskName, AnyNameIsReadBackAsItWasWritten) {
  engine::Random random(1);
  const std::string letters = "abcXYZ_09";
  for (int round = 0; round < 3'000; ++round) {
    TaskName name;
    if (random.below(2) == 0) {
      name.job = "j";
      for (std::size_t i = random.below(8); i > 0; --i)
        name.job += letters[random.below(letters.size())];
    }
    if (random.below(2) == 0) name.task = int(random.below(2'000'000'000));
    if (random.below(2) == 0)
      name.device = engine::DeviceId{std::array{"cpu", "gpu", "reference"}[random.below(3)],
                                     int(random.below(100))};
    EXPECT_EQ(parse_task_name(to_string(name)), name) << to_string(name);
  }
}

TEST(TaskName, InnerNamesWinPartByPart) {
  const struct {
    std::vector<const char*> nested;  // outermost first
    const char* merged;
  } rows[] = {
      {{}, ""},
      {{"/job:worker", "/task:1", "/cpu:0"}, "/job:worker/task:1/cpu:0"},
      {{"/cpu:0", "/task:1", "/job:worker"}, "/job:worker/task:1/cpu:0"},
      {{"/job:worker/task:1", "/task:2"}, "/job:worker/task:2"},
      {{"/job:worker/task:1", "/job:ps"}, "/job:ps/task:1"},
      {{"/job:ps/task:0", "/gpu:1", "/cpu:0"}, "/job:ps/task:0/cpu:0"},
      {{"/job:ps/task:1/cpu:0", ""}, "/job:ps/task:1/cpu:0"},
      {{"/job:ps/task:1/cpu:0", "/job:worker/task:2/gpu:3"}, "/job:worker/task:2/gpu:3"},
      {{"/task:0", "/task:1", "/task:2"}, "/task:2"},
  };
  for (const auto& row : rows) {
    TaskName name;
    for (const char* inner : row.nested) name = merge(name, parse_task_name(inner));
    EXPECT_EQ(to_string(name), row.merged);
  }
}

TEST(TaskName, WhatIsNotSaidIsTaskZeroAndTheFirstProcessor) {
  const auto whole = [](const char* text) {
    return to_string(with_defaults(parse_task_name(text)));
  };
  EXPECT_EQ(whole("/job:ps"), "/job:ps/task:0/cpu:0");
  EXPECT_EQ(whole("/job:worker/task:1"), "/job:worker/task:1/cpu:0");
  EXPECT_EQ(whole("/task:1"), "/task:1/cpu:0");
  EXPECT_EQ(whole("/job:worker/gpu:1"), "/job:worker/task:0/gpu:1");
}

TEST(TaskName, WhatIsNoNameIsAnErrorThatQuotesThePart) {
  EXPECT_EQ(error_of("/job:ps/tsk:1"),
            "'/job:ps/tsk:1' names no task: 'tsk:1' is neither job:NAME, task:NUMBER nor a device "
            "(cpu:NUMBER, gpu:NUMBER, reference:NUMBER); write e.g. /job:ps/task:1/cpu:0, or a "
            "part of that");
  EXPECT_EQ(error_of("job:ps"),
            "'job:ps' names no task: it must begin with '/'; write e.g. /job:ps/task:1/cpu:0, or "
            "a part of that");
  EXPECT_EQ(error_of("/task:1/job:ps/task:1"),
            "'/task:1/job:ps/task:1' names no task: 'task' is said twice there");
  EXPECT_EQ(error_of("/job:a/job:b"), "'/job:a/job:b' names no task: 'job' is said twice there");
  EXPECT_EQ(error_of("/cpu:0/gpu:0"),
            "'/cpu:0/gpu:0' names no task: 'a device' is said twice there");
  for (const char* text : {"/",
                           "//",
                           "/job:ps/",
                           "/job:ps//task:1",
                           "/job",
                           "/job:",
                           "/job:1",
                           "/job:p-s",
                           "/task",
                           "/task:",
                           "/task:-1",
                           "/task:+1",
                           "/task:1x",
                           "/task: 1",
                           "/task:99999999999",
                           "/cpu:",
                           "/cpu:x",
                           "/cpu:-1",
                           "/CPU:0",
                           "/job:ps /task:1",
                           "/device:cpu:0"})
    EXPECT_THAT(error_of(text), testing::HasSubstr("is neither job:NAME")) << text;
}

}  // namespace task_name_test
}  // namespace lockstep::test
