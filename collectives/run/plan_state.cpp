// SPDX-License-Identifier: MIT
#include "collectives/run/plan_state.h"

#include <algorithm>

namespace lockstep::collectives {

void Cursor::next() {
  ++step;
  looks = 0;
  waited = {};
  looked = {};
  late = {};
}

void PlanState::open(const Stage& of, int rank, int event) {
  stage = &of;
  mine = &of.plan.lanes[std::size_t(rank)];
  vendor = any_step(of.plan, [](const Step& s) { return s.action == Action::kVendor; });
  updates = any_step(of.plan, [](const Step& s) { return s.epilogue == Epilogue::kUpdate; });
  for (const auto& lanes : of.plan.lanes) {
    auto& counts = arrivals.emplace_back();
    for (const Lane& lane : lanes)
      counts.push_back(std::uint64_t(std::count_if(
          lane.begin(), lane.end(), [](const Step& s) { return s.action == Action::kArrive; })));
  }
  for (const Lane& lane : *mine) {
    cursors.emplace_back().posts.assign(lane.size(), -1);
    cursors.back().event = event++;
  }
}

bool PlanState::arrived(const Team& team, int plan, const Step& await, int rank) const {
  const std::uint64_t before = completed.load(std::memory_order_relaxed) *
                               arrivals[std::size_t(rank)][std::size_t(await.lane)];
  return team.counter(plan, rank, await.lane).load() >= before + std::uint64_t(await.phase);
}

}  // namespace lockstep::collectives
