// SPDX-License-Identifier: MIT
// Tells a rank that has waited for long which ranks are alive. A rank whose step has not moved for
// the deadline misses its neighbors in the plan. These may wait for others themselves; the rank to
// name is the one that is silent. So a waiting rank says that it waits. To ranks of its host it
// says so by a word in the control block, at every poll. Ranks of other hosts ask it. They get a
// plan in which it waits: the one they asked about if it waits there too, else another.
//
// A rank that reaches its deadline names the missing ranks that are silent. It asks the waiting
// ones to check their own neighbors, as if their deadline had passed. This reaches, rank by rank,
// the one that misses the silent rank. That one stops its host, and the others are told. A rank
// that asks gives way until then, but not forever. If all wait in a circle, as after a lost
// message, it names the ranks that it misses.
//
// Each executor has one, under its lock. Nothing is called before a wait has taken milliseconds.
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <vector>

#include "collectives/run/team.h"
#include "collectives/run/transport.h"

namespace lockstep::collectives {

class Liveness {
 public:
  using Time = engine::Clock::time_point;
  // Expects an answer of a live rank within `answer`. A rank that asks gives way for four times
  // that.
  Liveness(int rank, Team& team, Transport* transport, std::chrono::milliseconds answer);

  // Records that this rank polled a plan just now and could not go on. Receives and answers
  // questions of others. Throws what the transport throws.
  void wait(int plan, Time now);
  // Returns the plan that others have just asked this rank about.
  std::optional<int> asked(Time now) const;
  // Returns which of the `missing` ranks of a step to name. If it is empty, there are none yet, and
  // the caller asks again. `since`: the time from which the wait was too long.
  std::vector<int> silent(int plan, const std::vector<int>& missing, Time since, Time now);
  // Returns whether a rank has said recently that it waits too.
  bool waits(int rank, Time now) const;
  // Returns whether a rank has said recently that it waits in this plan.
  bool waits_in(int plan, int rank, Time now) const;
  // Returns the ranks that have said so of this plan, and this rank, ascending.
  std::vector<int> waiting(int plan, Time now) const;

 private:
  struct Peer {                         // of another host
    Time heard{};                       // last answer
    std::map<int, Time> heard_in = {};  // last answer that named the plan
    Time first_asked{}, asked{};        // first unanswered and last question
  };
  bool answers(int peer, int plan, Time now);
  int rank_;
  Team& team_;
  Transport* transport_;
  std::chrono::milliseconds answer_;
  std::map<int, Peer> peers_;
  std::optional<int> question_;  // plan that another host asked about
  Time questioned_{}, attended_{};
  Time looked_{}, awake_{};  // last poll; since when without a pause
};

}  // namespace lockstep::collectives
