// SPDX-License-Identifier: MIT
// Position of a rank in a plan: plain state of an executor, under its lock except for atomics.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/plan/plan.h"
#include "collectives/run/team.h"
#include "engine/base/error.h"
#include "engine/ops/ops.h"
#include "engine/ops/step_state.h"

namespace lockstep::collectives {

// Holds the position of the rank in one lane.
struct Cursor {
  std::size_t step = 0, element = 0;   // elements done in this step
  std::size_t owned = 0;               // update steps: packed begin of the range
  std::vector<int> posts = {};         // request of each posting step
  int event = 0;                       // behind its copies of messages
  bool copied = false;                 // next message to send is copied
  bool taken = false;                  // received one is copied or queued
  int looks = 0;                       // polls of this step while stuck
  std::chrono::nanoseconds waited{0};  // between polls, except the first few
  engine::Clock::time_point looked{};
  engine::Clock::time_point late{};  // since when that is too long

  void next();  // moves to the next step
};

struct PlanState {
  // Opens the state once. Lanes number the events of their copies from `event` on.
  void open(const Stage& stage, int rank, int event);
  // Returns whether its sums are queued on the device of these ops. Otherwise they are done when it
  // has moved.
  bool queued(const engine::Ops& ops) const { return !ops.in_host_memory() && !stage->by_host; }
  // Returns whether a rank of the host has arrived at what a lane awaits, in the current execution.
  // `plan`: the number of this plan.
  bool arrived(const Team& team, int plan, const Step& await, int rank) const;

  const Stage* stage = nullptr;
  const std::vector<Lane>* mine = nullptr;                // lanes of this rank
  std::vector<std::vector<std::uint64_t>> arrivals = {};  // per execution: [rank][lane]
  std::atomic<std::uint64_t> requested{0}, completed{0};  // executions
  std::atomic<const engine::StepState*> step_state{nullptr};
  engine::Clock::time_point began{};  // last execution, if observed
  std::vector<Cursor> cursors = {};
  bool vendor = false;       // some step of it is a vendor's sum
  std::uint64_t launch = 0;  // if so: its number, equal on all ranks
  bool updates = false;      // any rank has an update step
};

}  // namespace lockstep::collectives
