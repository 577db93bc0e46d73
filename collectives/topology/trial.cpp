// SPDX-License-Identifier: MIT
#include "collectives/topology/trial.h"

#include <algorithm>
#include <map>

#include "collectives/topology/doublings.h"

namespace lockstep::collectives {
double trial_factor(std::span<const Trial> trials, std::string_view algorithm, double bytes) {
  std::map<double, double> tried;  // factors by doublings of bytes
  for (const Trial& trial : trials) {
    double& largest = tried[doublings(1, trial.bytes)];
    largest = std::max(largest, trial.seconds / trial.simulated);
  }
  for (const Trial& trial : trials)
    if (trial.algorithm == algorithm)
      tried[doublings(1, trial.bytes)] = trial.seconds / trial.simulated;
  if (tried.empty()) return 1;
  const double at = doublings(1, bytes);
  double from = tried.begin()->first, before = tried.begin()->second;
  if (at <= from) return before;
  const auto between = [&](double to, double behind) {
    return before + (behind - before) * (at - from) / (to - from);
  };
  for (const auto& [to, factor] : tried) {
    if (at < to) return between(to, factor);
    from = to, before = factor;
  }
  const double faded = from + doublings(1, kFaded);
  return at < faded ? between(faded, 1) : 1;
}

}  // namespace lockstep::collectives
