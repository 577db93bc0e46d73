// SPDX-License-Identifier: MIT
// A trial is an all-reduce that the ranks of a job ran and timed, with its simulated time. How long
// ranks wait for each other depends on other load, sleeping threads and the contents of caches.
// Costs of single steps tell little of that. So a predicted time is the simulated time, multiplied
// by what trials took relative to their simulation. Trials are plain values, part of a Topology and
// of its JSON. Thread-safe.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace lockstep::collectives {

struct Trial {
  std::string algorithm;
  double bytes = 0;      // per rank
  double simulated = 0;  // s, by the topology's costs; positive
  double seconds = 0;    // s, measured; positive
  bool operator==(const Trial&) const = default;
};

// Returns the factor of the algorithm's predicted time at `bytes`. At the bytes of its own trials,
// the predicted time is the measured one. At bytes where only others have trials, it gets the
// largest factor of these, so that nothing is chosen because it was not timed. In between, the
// factor changes linearly with doublings of the bytes. Before the first trial it is constant. After
// the last it approaches 1, and is 1 from kFaded times those bytes on. Without trials the factor is
// 1. The result has the same bits on all machines.
inline constexpr double kFaded = 16;
double trial_factor(std::span<const Trial> trials, std::string_view algorithm, double bytes);

}  // namespace lockstep::collectives
