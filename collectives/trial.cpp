// SPDX-License-Identifier: MIT
#include "collectives/trial.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include "collectives/doublings.h"

namespace lockstep::collectives {
namespace {

// Of one size.
struct Factors {
  std::vector<double> all = {};
  std::optional<double> own = {};  // of the algorithm that is asked for

  double wanted() {
    std::sort(all.begin(), all.end());
    const std::size_t n = all.size();
    const double together = std::sqrt(all[n / 2] * all[(n - 1) / 2]);
    return own ? std::sqrt(together * *own) : together;
  }
};

}  // namespace

double trial_factor(std::span<const Trial> trials, std::string_view algorithm, double bytes) {
  std::map<double, Factors> tried;  // by doublings of bytes
  for (const Trial& trial : trials) {
    Factors& of_size = tried[doublings(1, trial.bytes)];
    of_size.all.push_back(trial.seconds / trial.simulated);
    if (trial.algorithm == algorithm) of_size.own = of_size.all.back();
  }
  if (tried.empty()) return 1;
  const double at = doublings(1, bytes);
  double from = tried.begin()->first, before = tried.begin()->second.wanted();
  if (at <= from) return before;
  const auto between = [&](double to, double behind) {
    return before + (behind - before) * (at - from) / (to - from);
  };
  for (auto& [to, factors] : tried) {
    const double factor = factors.wanted();
    if (at < to) return between(to, factor);
    from = to, before = factor;
  }
  const double faded = from + doublings(1, kFaded);
  return at < faded ? between(faded, 1) : 1;
}

}  // namespace lockstep::collectives
