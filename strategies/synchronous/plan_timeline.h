// SPDX-License-Identifier: MIT
// An observer that adds the plans of a step to a timeline, each from its start to its end, and the
// waits of the computing thread. Threads: like ExecutorObserver; call `record` while no plan runs.
#pragma once
#include <vector>

#include "collectives/plan/plan.h"
#include "collectives/run/executor.h"
#include "engine/report/timeline.h"

namespace lockstep::strategies {

class PlanTimeline : public collectives::ExecutorObserver {
 public:
  // Keeps `timeline`, which must outlive the plans in progress, also those of a failed replica.
  void record(engine::Timeline& timeline, const collectives::StepPlan& step);

  void starts(int plan) override;
  void waits(int plan) override;
  void completed(int plan, engine::Clock::time_point begin, engine::Clock::time_point end) override;
  void waited(int plan, engine::Clock::time_point begin, engine::Clock::time_point end) override;

 private:
  engine::Timeline* timeline_ = nullptr;
  std::vector<int> plan_kinds_, wait_kinds_;  // kinds of the timeline, by plan
};

}  // namespace lockstep::strategies
