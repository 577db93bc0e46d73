// SPDX-License-Identifier: MIT
// An all-reduce of few bytes that was run while costs were measured, and what the simulator says of
// it from these costs. Few bytes take as long as their signals and messages wait for each other,
// and how long that is depends on who else is at work on a processor, who sleeps, and whose cache
// holds what: of this the costs of one alone tell little. So prices of few bytes are taken times
// what trials took over what they should have taken. A plain value, part of a Topology and of its
// JSON. Any thread.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace lockstep::collectives {

struct Trial {
  std::string algorithm;
  double bytes = 0;      // of a rank
  double simulated = 0;  // s, by the measured costs; positive
  double seconds = 0;    // that it took; positive
  bool operator==(const Trial&) const = default;
};

// By which the price of so many bytes is to be taken. At the bytes of trials: how far all that were
// tried there were off together (the middle one), and half of how far this one was off beside them
// (the root of both), since a trial is uncertain too. Whenever bytes double it goes on by as much,
// from size to size; before the first it stays; behind the last it goes to 1, and is that from
// kFaded times the last bytes on. 1 where nothing was tried. The same bits everywhere: of
// mathematics it uses square roots alone.
inline constexpr double kFaded = 16;
double trial_factor(std::span<const Trial> trials, std::string_view algorithm, double bytes);

}  // namespace lockstep::collectives
