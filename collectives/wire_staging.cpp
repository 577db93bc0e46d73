// SPDX-License-Identifier: MIT
#include "collectives/wire_staging.h"

#include <algorithm>

namespace lockstep::collectives {
namespace {

constexpr std::size_t kLine = 64;  // places begin there

std::size_t bytes_of(const Step& step) {
  if (!step.wire) return 0;
  return (step.count * engine::size_of(*step.wire) + kLine - 1) / kLine * kLine;
}

}  // namespace

// A post takes the first place of its lane that is free, and its wait gives it back.
WireStaging::Layout WireStaging::lay_out(const StepPlan& step, int rank) {
  Layout layout;
  for (const Stage& stage : step) {
    auto& lanes = layout.places.emplace_back();
    for (const Lane& lane : stage.plan.lanes[std::size_t(rank)]) {
      auto& places = lanes.emplace_back(lane.size(), 0);
      std::size_t largest = 0;
      for (const Step& s : lane) largest = std::max(largest, bytes_of(s));
      std::vector<bool> taken;
      std::vector<std::size_t> number(lane.size());  // of a post's place
      for (std::size_t i = 0; i < lane.size() && largest > 0; ++i) {
        if (lane[i].wire) {
          number[i] = std::size_t(std::ranges::find(taken, false) - taken.begin());
          if (number[i] == taken.size()) taken.push_back(false);
          taken[number[i]] = true;
          places[i] = layout.bytes + number[i] * largest;
        }
        const auto post = std::size_t(std::max(lane[i].post, 0));
        if (lane[i].action == Action::kWait && lane[post].wire) taken[number[post]] = false;
      }
      layout.bytes += taken.size() * largest;
    }
  }
  return layout;
}

WireStaging::WireStaging(const StepPlan& step, int rank)
    : layout_(lay_out(step, rank)), memory_(layout_.bytes) {}

std::size_t WireStaging::bytes(const StepPlan& step, int rank) {
  return lay_out(step, rank).bytes;
}

std::byte* WireStaging::at(int plan, int lane, std::size_t step) const {
  return memory_.data() + layout_.places[std::size_t(plan)][std::size_t(lane)][step];
}

}  // namespace lockstep::collectives
