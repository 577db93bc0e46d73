// SPDX-License-Identifier: MIT
// Who is there, for a rank that has waited for long. A rank whose step has not moved for the
// deadline misses its neighbours in the plan. These may be there and wait themselves, for others:
// to be named is the rank that is not there. So a rank that waits says so: to those of its host by
// a word in the control block, at every look; to those of other hosts when they ask, with the plan
// that it waits in: the one asked about where it waits in that, too, else another. Whoever
// reaches its deadline names those whom it misses and who say nothing. Those who wait, too, it asks
// to look around themselves, as if their deadline was over; and so on, rank by rank, to the one
// that misses the rank that is silent. That one stops its host, and the others are told. Who has
// asked gives way until then, but not for ever: where all wait in a circle, as when a message was
// lost, it names whom it misses.
//
// One of each executor, under its lock. Before a wait has taken milliseconds nothing is called.
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
  // `answer`: who is there says so in this time. Who asks gives way for four times that.
  Liveness(int rank, Team& team, Transport* transport, std::chrono::milliseconds answer);

  // This rank looked at a plan just now and could not go on. Hears and answers what others ask:
  // throws what the transport throws.
  void wait(int plan, Time now);
  // The plan that others have just asked this rank about.
  std::optional<int> asked(Time now) const;
  // Of those whom a step of a plan misses, who is to be named; empty: nobody yet, it is to be asked
  // again. `since`: from when on the wait was too long.
  std::vector<int> silent(int plan, const std::vector<int>& missing, Time since, Time now);
  // Whether a rank has said that it waits too, in the last time.
  bool waits(int rank, Time now) const;
  // The same, in this plan.
  bool waits_in(int plan, int rank, Time now) const;
  // Those who have said so, of this plan, and this rank; ascending.
  std::vector<int> waiting(int plan, Time now) const;

 private:
  struct Peer {                         // of another host
    Time heard{};                       // last
    std::map<int, Time> heard_in = {};  // the same, by the plan that it said
    Time first_asked{}, asked{};        // since then, and without an answer
  };
  bool answers(int peer, int plan, Time now);
  int rank_;
  Team& team_;
  Transport* transport_;
  std::chrono::milliseconds answer_;
  std::map<int, Peer> peers_;
  std::optional<int> question_;  // of another host
  Time questioned_{}, attended_{};
  Time looked_{}, awake_{};  // last; and since when it has looked without a pause
};

}  // namespace lockstep::collectives
