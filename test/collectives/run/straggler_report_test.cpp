// SPDX-License-Identifier: MIT
// A rank that has waited too long on one host names the missing ranks, after some have come.
#include "collectives/run/straggler_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/algorithms/algorithms.h"
#include "engine/device/buffer.h"

namespace lockstep::collectives {
namespace straggler_report_test {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

// Rank 0 of three waits in the second of two plans, both direct sums. The second plan comes after
// the first.
class StragglerReportTest : public testing::Test {
 protected:
  StragglerReportTest() {
    Request request;
    request.subject = {0, 30};
    request.host = {0, 0, 0};
    for (const char* const name : {"first", "second"}) {
      request.name = name;
      step_.push_back({direct_all_reduce(request), {}, false});
    }
    step_[1].after = {0};
    for (std::size_t i = 0; i < plans_.size(); ++i) plans_[i].open(step_[i], 0, 0);
    report_.open();
  }
  // Moves the cursor to the first step that awaits others.
  void come_to_await(int plan) {
    PlanState& state = plans_[std::size_t(plan)];
    ++state.requested;
    Cursor& cursor = state.cursors[0];
    for (const Lane& lane = (*state.mine)[0]; lane[cursor.step].action != Action::kAwait;
         ++cursor.step)
      if (lane[cursor.step].action == Action::kArrive) team_.arrive(plan, 0, 0);
    cursor.looks = 1;
  }
  engine::Error stop(int plan) {
    // The asked ranks have had their time to answer.
    for (int look = 0; look < 100 && !team_.stopped(); ++look)
      report_.stop_late(plan, 1500ms, engine::Clock::now() - 1h);
    try {
      team_.rethrow();
    } catch (const engine::Error& error) {
      return error;
    }
  }

  engine::Buffer control_{Team::control_bytes(3, 2)};
  Team team_{{0, 1, 2}, 2, control_.data()};
  StepPlan step_;
  std::vector<PlanState> plans_ = std::vector<PlanState>(2);
  StragglerReport report_{0, team_, nullptr, 400ms, plans_};
};

TEST_F(StragglerReportTest, NamesTheRankThatHasNotCome) {
  come_to_await(0);
  team_.arrive(0, 1, 0);
  report_.set_purpose(0, "a test");
  EXPECT_THAT(report_.waiting_for(0, {}), HasSubstr("rank 0 waits for a test: first"));
  EXPECT_THAT(report_.waiting_for(0, {}), HasSubstr("missing: rank 2"));
  const engine::Error error = stop(0);
  EXPECT_EQ(error.code(), engine::Code::kTimeout);
  EXPECT_THAT(error.ranks(), ElementsAre(2));
  EXPECT_THAT(error.what(), testing::StartsWith("rank 2 is missing: a test: first"));
  EXPECT_THAT(error.what(), testing::EndsWith("rank 0 waited 1500 ms; arrived: ranks 0 1"));
}

TEST_F(StragglerReportTest, NamesAnEarlierPlanThatWasNotStarted) {
  ++plans_[1].requested;
  const engine::Error error = stop(1);
  EXPECT_THAT(error.what(), HasSubstr("it comes after first, which rank 0 has not started"));
}

TEST_F(StragglerReportTest, NamesWhomAnEarlierPlanWaitsFor) {
  ++plans_[1].requested;
  come_to_await(0);
  team_.arrive(0, 2, 0);
  EXPECT_THAT(stop(1).ranks(), ElementsAre(1));
}

}  // namespace straggler_report_test
}  // namespace lockstep::collectives
