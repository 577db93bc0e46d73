// SPDX-License-Identifier: MIT
// Says whom a rank waits for that has waited for too long, and stops its team with that: the ranks
// that are silent are named, not those that wait themselves (liveness.h). Each executor owns one
// and calls it under its lock, except `set_purpose`, which any thread may call. The team, the
// transport and the plans outlive it.
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
  // `answer`: as for Liveness. `plans`: of the executor, which has them all once it is opened.
  StragglerReport(int rank, Team& team, Transport* transport, std::chrono::milliseconds answer,
                  std::vector<PlanState>& plans)
      : rank_(rank), team_(team), liveness_(rank, team, transport, answer), plans_(plans) {}
  void open() { purposes_.resize(plans_.size()); }

  // Sets what errors say in front of a plan, for as long as it is waited for; empty: nothing.
  void set_purpose(int plan, std::string_view purpose);
  // Records one more look at a stuck lane, and for how long it has been watched. Past the deadline,
  // or where others ask whom it waits for, stops the team if somebody is to be named.
  void look(int plan, int lane, std::chrono::milliseconds deadline);
  // Stops the team because a wait for the plan, which is not done, has been late since `since`:
  // with whom the plan waits for, or a plan that it comes after; or with what else is wrong.
  void stop_late(int plan, std::chrono::milliseconds waited, Time since);
  // "rank 0 waits for bucket 0 (ring, 4096 bytes); arrived: 0 1; missing: rank 2". Missing are the
  // lost ranks; where these are not known, whom the first lane needs that needs somebody: of the
  // plan, or of one that it comes after.
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
  mutable std::mutex mutex_;           // of the purposes
  std::vector<std::string> purposes_;  // by plan
};

}  // namespace lockstep::collectives
