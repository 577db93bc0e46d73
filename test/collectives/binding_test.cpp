// SPDX-License-Identifier: MIT
#include "collectives/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace lockstep::collectives {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Binding, ReplicasThatFillTheProcessorsGetTheirOwn) {
  const std::vector<HostProcess> processes{{{0, 1, 2, 5, 6, 7}, 1}, {{0, 1, 2, 5, 6, 7}, 2}};
  const Binding first = plan_binding(processes, 0, 2, 64),
                second = plan_binding(processes, 1, 2, 64);
  EXPECT_THAT(first.processors, ElementsAre(ElementsAre(0, 1)));
  EXPECT_THAT(second.processors, ElementsAre(ElementsAre(2, 5), ElementsAre(6, 7)));
  EXPECT_EQ(first.warning + second.warning, "");
}

TEST(Binding, IdleProcessorsLeaveTheChoiceToTheKernel) {
  const std::vector<HostProcess> processes{{{0, 1, 2, 3}, 3}};
  EXPECT_THAT(plan_binding(processes, 0, 1, 64).processors,
              ElementsAre(IsEmpty(), IsEmpty(), IsEmpty()));
  EXPECT_EQ(plan_binding(processes, 0, 1, 64).warning, "");
}

TEST(Binding, MoreThreadsThanProcessorsTakeTurnsAndItIsSaid) {
  const std::vector<HostProcess> processes{{{0, 1}, 2}, {{0, 1}, 2}};
  const Binding binding = plan_binding(processes, 1, 1, 64);
  EXPECT_THAT(binding.processors, ElementsAre(IsEmpty(), IsEmpty()));
  EXPECT_THAT(binding.warning, HasSubstr("4 replicas of 1 thread share 2 processors"));
}

TEST(Binding, WhatALauncherChoseIsKept) {
  const std::vector<HostProcess> processes{{{0}, 1}, {{1}, 1}};
  EXPECT_THAT(plan_binding(processes, 1, 1, 64).processors, ElementsAre(ElementsAre(1)));
  EXPECT_EQ(plan_binding(processes, 1, 1, 64).warning, "");
  const std::vector<HostProcess> narrow{{{0}, 2}, {{1}, 2}};
  EXPECT_THAT(plan_binding(narrow, 0, 1, 64).warning, HasSubstr("--bind-to none"));
}

TEST(Binding, AQuotaCountsLikeFewerProcessors) {
  const std::vector<HostProcess> processes{{{0, 1, 2, 3}, 4}};
  EXPECT_THAT(plan_binding(processes, 0, 1, 2).warning,
              HasSubstr("4 replicas of 1 thread share 2 processors"));
  EXPECT_THAT(plan_binding(processes, 0, 1, 2).processors, testing::Each(IsEmpty()));
  EXPECT_EQ(plan_binding(processes, 0, 1, 4).warning, "");
}

TEST(Binding, TextForOtherProcesses) {
  const std::vector<int> some{0, 3, 17};
  EXPECT_EQ(to_text(some), "0,3,17");
  EXPECT_EQ(processors_of("0,3,17"), some);
  EXPECT_THAT(processors_of(""), IsEmpty());
  EXPECT_THAT(processors_of("1,x"), IsEmpty());
}

TEST(Binding, AThreadRunsWhereItIsBound) {
  const std::vector<int> allowed = allowed_processors();
  ASSERT_FALSE(allowed.empty());
  const std::vector<int> last{allowed.back()};
  std::vector<int> found;
  std::thread([&] {
    bind_this_thread(last);
    found = allowed_processors();
  }).join();
  EXPECT_EQ(found, last);
  EXPECT_EQ(allowed_processors(), allowed);  // the others are free as before
}

}  // namespace
}  // namespace lockstep::collectives
