// SPDX-License-Identifier: MIT
#include "collectives/plan/traffic.h"

namespace lockstep::collectives {

std::vector<Traffic> traffic(const Plan& plan) {
  std::vector<Traffic> list;
  for (const auto& lanes : plan.lanes) {
    Traffic& mine = list.emplace_back();
    for (const Lane& lane : lanes)
      for (const Step& step : lane) {
        if (step.action != Action::kPostSend || step.count == 0) continue;
        ++mine.messages, mine.elements += step.count;
        mine.bytes += step.count * engine::size_of(step.wire.value_or(plan.dtype));
      }
  }
  return list;
}

}  // namespace lockstep::collectives
