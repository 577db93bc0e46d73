// SPDX-License-Identifier: MIT
#include "strategies/synchronous/plan_timeline.h"

#include <nlohmann/json.hpp>

namespace lockstep::strategies {

using collectives::Space;

void PlanTimeline::record(engine::Timeline& timeline, const collectives::StepPlan& step) {
  plan_kinds_.clear();
  wait_kinds_.clear();
  for (const collectives::Stage& stage : step) {
    const collectives::Plan& plan = stage.plan;
    const std::size_t bytes = plan.subject.size() * engine::size_of(plan.dtype);
    const nlohmann::json arguments{{"range", {plan.subject.begin, plan.subject.end}},
                                   {"bytes", bytes},
                                   {"algorithm", plan.algorithm}};
    const char* category = plan.space == Space::kGradient ? "bucket" : "exchange";
    using Lane = engine::Timeline::Lane;
    plan_kinds_.push_back(
        timeline.kind({Lane::kCommunication, category, plan.name, arguments.dump()}));
    wait_kinds_.push_back(timeline.kind({Lane::kComputing, "wait", "wait: " + plan.name, {}}));
  }
  timeline_ = &timeline;
}

void PlanTimeline::starts(int plan) {
  timeline_->begin(plan_kinds_[std::size_t(plan)]);
}

void PlanTimeline::waits(int plan) {
  timeline_->begin(wait_kinds_[std::size_t(plan)]);
}

void PlanTimeline::completed(int plan, engine::Clock::time_point begin,
                             engine::Clock::time_point end) {
  timeline_->add(plan_kinds_[std::size_t(plan)], begin, end);
}

void PlanTimeline::waited(int plan, engine::Clock::time_point begin,
                          engine::Clock::time_point end) {
  timeline_->add(wait_kinds_[std::size_t(plan)], begin, end);
}

}  // namespace lockstep::strategies
