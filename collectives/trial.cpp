// SPDX-License-Identifier: MIT
#include "collectives/trial.h"

#include <algorithm>
#include <map>
#include <vector>

#include "collectives/doublings.h"

namespace lockstep::collectives {
namespace {

double middle(std::vector<double> factors) {
  std::sort(factors.begin(), factors.end());
  const std::size_t n = factors.size();
  return (factors[n / 2] + factors[(n - 1) / 2]) / 2;
}

}  // namespace

double trial_factor(std::span<const Trial> trials, std::string_view algorithm, double bytes) {
  const bool own = std::ranges::find(trials, algorithm, &Trial::algorithm) != trials.end();
  std::map<double, std::vector<double>> tried;  // factors, by doublings of bytes
  for (const Trial& trial : trials)
    if (!own || trial.algorithm == algorithm)
      tried[doublings(1, trial.bytes)].push_back(trial.seconds / trial.simulated);
  if (tried.empty()) return 1;
  const double at = doublings(1, bytes);
  double from = tried.begin()->first, before = middle(tried.begin()->second);
  if (at <= from) return before;
  const auto between = [&](double to, double behind) {
    return before + (behind - before) * (at - from) / (to - from);
  };
  for (const auto& [to, factors] : tried) {
    const double factor = middle(factors);
    if (at < to) return between(to, factor);
    from = to, before = factor;
  }
  const double faded = from + doublings(1, kFaded);
  return at < faded ? between(faded, 1) : 1;
}

}  // namespace lockstep::collectives
