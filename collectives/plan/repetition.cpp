// SPDX-License-Identifier: MIT
#include "collectives/plan/repetition.h"

#include <algorithm>

namespace lockstep::collectives {

StepPlan repetition(const Plan& plan) {
  std::size_t end = plan.subject.end;
  for (const auto& lanes : plan.lanes)
    for (const Lane& lane : lanes)
      for (const Step& step : lane)
        for (const auto* operands : {&step.from, &step.to})
          for (const Operand& o : *operands)
            if (o.space != Space::kScratch) end = std::max(end, o.offset + step.count);
  const std::size_t blocks = end / engine::kBlock + 1;
  StepPlan row;
  for (int execution = 0; execution < 3; ++execution) {
    Stage& stage = row.emplace_back(Stage{plan, {}, false});
    if (execution > 0) stage.after = {execution - 1};
    const std::size_t on = std::size_t(execution) * blocks;
    const auto move = [&](Operand& o) {
      o.offset += o.space == Space::kScratch ? std::size_t(execution % 2) * plan.alternate
                  : o.space == Space::kNorms ? on
                                             : on * engine::kBlock;
    };
    stage.plan.subject.begin += on * engine::kBlock;
    stage.plan.subject.end += on * engine::kBlock;
    for (auto& lanes : stage.plan.lanes)
      for (Lane& lane : lanes)
        for (Step& step : lane) {
          std::for_each(step.from.begin(), step.from.end(), move);
          std::for_each(step.to.begin(), step.to.end(), move);
        }
  }
  return row;
}

}  // namespace lockstep::collectives
