// SPDX-License-Identifier: MIT
#include "collectives/trial.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

namespace lockstep::collectives {

namespace {

// Logarithms of factors of one size.
struct Factors {
  double sum = 0;
  int count = 0;
  std::optional<double> own = {};  // of the algorithm that is asked for

  double wanted() const {
    const double together = sum / count;
    return own ? (together + *own) / 2 : together;
  }
};

}  // namespace

double trial_factor(std::span<const Trial> trials, std::string_view algorithm, double bytes) {
  std::map<double, Factors> tried;  // by the logarithm of bytes
  for (const Trial& trial : trials) {
    Factors& of_size = tried[std::log(trial.bytes)];
    const double factor = std::log(trial.seconds / trial.simulated);
    of_size.sum += factor, ++of_size.count;
    if (trial.algorithm == algorithm) of_size.own = factor;
  }
  if (tried.empty()) return 1;
  const double at = std::log(std::max(bytes, 1.0));
  double from = tried.begin()->first, before = tried.begin()->second.wanted();
  if (at <= from) return std::exp(before);
  const auto between = [&](double to, double behind) {
    return std::exp(before + (behind - before) * (at - from) / (to - from));
  };
  for (const auto& [to, factors] : tried) {
    if (at < to) return between(to, factors.wanted());
    from = to, before = factors.wanted();
  }
  const double faded = from + std::log(kFaded);
  return at < faded ? between(faded, 0) : 1;
}

}  // namespace lockstep::collectives
