// SPDX-License-Identifier: MIT
#include "collectives/run/wire_staging.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

constexpr std::size_t kPlaceAlignment = 64;  // places begin there

bool posts(const Step& step) {
  return step.action == Action::kPostSend || step.action == Action::kPostReceive;
}

}  // namespace

// Gives each post the first free place of its lane, which its wait frees again.
WireStaging::Layout WireStaging::lay_out(const StepPlan& step, int rank, bool on_device) {
  Layout layout;
  for (const Stage& stage : step) {
    const bool all = on_device && !stage.by_host;
    const auto is_staged = [&](const Step& s) { return posts(s) && (all || s.wire); };
    const auto bytes_of = [&](const Step& s) {
      const std::size_t bytes = s.count * engine::size_of(s.wire.value_or(stage.plan.dtype));
      return (bytes + kPlaceAlignment - 1) / kPlaceAlignment * kPlaceAlignment;
    };
    auto& lanes = layout.places.emplace_back();
    for (const Lane& lane : stage.plan.lanes[std::size_t(rank)]) {
      auto& places = lanes.emplace_back(lane.size(), kNone);
      std::size_t largest = 0;
      for (const Step& s : lane)
        if (is_staged(s)) largest = std::max(largest, bytes_of(s));
      std::vector<bool> taken;
      std::vector<std::size_t> number(lane.size());  // number of a post's place
      for (std::size_t i = 0; i < lane.size() && largest > 0; ++i) {
        if (is_staged(lane[i])) {
          number[i] = std::size_t(std::ranges::find(taken, false) - taken.begin());
          if (number[i] == taken.size()) taken.push_back(false);
          taken[number[i]] = true;
          places[i] = layout.bytes + number[i] * largest;
        }
        const auto post = std::size_t(std::max(lane[i].post, 0));
        if (lane[i].action == Action::kWait && is_staged(lane[post])) taken[number[post]] = false;
      }
      layout.bytes += taken.size() * largest;
    }
  }
  return layout;
}

WireStaging::WireStaging(const StepPlan& step, int rank, bool on_device, engine::Buffer memory)
    : layout_(lay_out(step, rank, on_device)), memory_(std::move(memory)) {
  engine::invariant(memory_.bytes() >= layout_.bytes, "too little memory for messages");
}

std::size_t WireStaging::bytes(const StepPlan& step, int rank, bool on_device) {
  return lay_out(step, rank, on_device).bytes;
}

std::byte* WireStaging::at(int plan, int lane, std::size_t step) const {
  const std::size_t place = layout_.places[std::size_t(plan)][std::size_t(lane)][step];
  return place == kNone ? nullptr : memory_.data() + place;
}

}  // namespace lockstep::collectives
