// SPDX-License-Identifier: MIT
// Reports the ranks for which a rank has waited too long, and stops its team with that. It names
// the silent ranks, not those that wait themselves (liveness.h). Each executor owns one and calls
// it under its lock, except for `set_purpose`, which is thread-safe. The team, the transport and
// the plans outlive it.
#pragma once
#include <chrono>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/run/liveness.h"
#include "collectives/run/plan_state.h"
#include "collectives/run/team.h"
#include "collectives/run/transport.h"

namespace lockstep::collectives {

class StragglerReport {
 public:
  using Time = engine::Clock::time_point;
  // Starts without plans. `answer`: as for Liveness. `plans`: the executor's, complete once it is
  // opened.
  StragglerReport(int rank, Team& team, Transport* transport, std::chrono::milliseconds answer,
                  std::vector<PlanState>& plans)
      : rank_(rank), team_(team), liveness_(rank, team, transport, answer), plans_(plans) {}
  void open() { purposes_.resize(plans_.size()); }

  // Sets the text that precedes errors about a plan while it is waited for; empty: none. The text
  // is not copied: it must outlive the wait, after which the caller sets an empty one.
  void set_purpose(int plan, std::string_view purpose);
  // Records one more poll of a stuck lane and for how long it has been watched. Past the deadline,
  // or if others ask for which rank it waits, stops the team if a rank is to be named.
  void look(int plan, int lane, std::chrono::milliseconds deadline);
  // Stops the team because a wait for the plan, which is not done, has been late since `since`. The
  // error names the ranks for which the plan waits, or a plan that it comes after, or says what
  // else is wrong.
  void stop_late(int plan, std::chrono::milliseconds waited, Time since);
  // Returns "rank 0 waits for bucket 0 (ring, 4096 bytes); arrived: ranks 0 1; missing: rank 2".
  // Missing are the lost ranks. If these are not known, missing are the ranks that the first
  // waiting lane needs, in the plan or in one that it comes after.
  std::string waiting_for(int plan, const std::vector<int>& lost) const;

 private:
  std::string purpose_of(int plan) const;
  std::vector<int> missing(int plan, int lane) const;
  std::string arrivals(int plan, int lane, const std::vector<int>& missing) const;
  bool others_ask(int plan, Time now) const;
  bool stop_late_lane(int plan, int lane, std::chrono::milliseconds waited, Time since, Time now);
  bool stop_late_plan(int plan, std::chrono::milliseconds waited, Time since);

  int rank_;
  Team& team_;
  Liveness liveness_;
  std::vector<PlanState>& plans_;
  mutable std::mutex mutex_;                // of the purposes
  std::vector<std::string_view> purposes_;  // by plan; lent by callers
};

}  // namespace lockstep::collectives
