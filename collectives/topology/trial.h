// SPDX-License-Identifier: MIT
// A trial is an all-reduce that the ranks of a job ran and timed, beside what the simulator says of
// it. How long ranks wait for each other depends on who else has the processor, who sleeps, and
// whose cache holds what, and costs of single steps tell little of that. So a price is the
// simulator's, times what trials took over what the simulator says. A plain value, part of a
// Topology and of its JSON. Any thread.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace lockstep::collectives {

struct Trial {
  std::string algorithm;
  double bytes = 0;      // of a rank
  double simulated = 0;  // s, by the topology's costs; positive
  double seconds = 0;    // that it took; positive
  bool operator==(const Trial&) const = default;
};

// Returns the factor of the algorithm's price for so many bytes. At the bytes of its trials the
// price is what they took; at those of others it has the largest factor of these, so that nothing
// is chosen because it was not timed. Between them the factor changes by as much whenever the bytes
// double; before the first it stays; behind the last it goes to 1, which it is from kFaded times
// those bytes on. Where there are no trials the factor is 1. The result has the same bits on all
// machines.
inline constexpr double kFaded = 16;
double trial_factor(std::span<const Trial> trials, std::string_view algorithm, double bytes);

}  // namespace lockstep::collectives
