// SPDX-License-Identifier: MIT
// The place of a rank in a plan: plain state of an executor, under its lock but for what is atomic.
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

// The place of the rank in one lane.
struct Cursor {
  std::size_t step = 0, element = 0;   // of the step: so many elements are reduced or converted
  std::size_t owned = 0;               // update steps: where the step's range lies, packed
  std::vector<int> posts = {};         // the transport's request of each posting step
  int event = 0;                       // behind its copies of messages
  bool copied = false;                 // the message that is to be sent next is
  bool taken = false;                  // one that came is, or will be when the event is done
  int looks = 0;                       // at this step, while it was stuck
  std::chrono::nanoseconds waited{0};  // of these, but for the first few
  engine::Clock::time_point looked{};
  engine::Clock::time_point late{};  // since when that has been too long

  void next();  // to the next step
};

struct PlanState {
  // Called once. Lanes number the events of their copies from `event` on.
  void open(const Stage& stage, int rank, int event);
  // Returns whether its sums are queued on the device of these ops; else they are done when it has
  // moved.
  bool queued(const engine::Ops& ops) const { return !ops.in_host_memory() && !stage->by_host; }
  // Returns whether a rank of the host has come to what a lane awaits, in the present execution.
  // `plan`: the number of this one.
  bool arrived(const Team& team, int plan, const Step& await, int rank) const;

  const Stage* stage = nullptr;
  const std::vector<Lane>* mine = nullptr;                // its lanes of this rank
  std::vector<std::vector<std::uint64_t>> arrivals = {};  // per execution: [rank][lane]
  std::atomic<std::uint64_t> requested{0}, completed{0};  // executions
  std::atomic<const engine::StepState*> step_state{nullptr};
  engine::Clock::time_point began{};  // the last execution, where somebody observes
  std::vector<Cursor> cursors = {};
  bool vendor = false;       // some step of it is a vendor's sum
  std::uint64_t launch = 0;  // then: which of all such executions this is; all ranks agree
  bool updates = false;      // some step of it, of any rank, is an update
};

}  // namespace lockstep::collectives
