// SPDX-License-Identifier: MIT
#include "engine/report/histogram.h"

#include <algorithm>
#include <cmath>

namespace lockstep::engine {
namespace {

constexpr double kShortest = 1e-6;  // seconds

}  // namespace

void Histogram::add(double seconds) {
  std::size_t bin = 0;
  if (seconds >= kShortest) {
    const double place = 1 + kPerOctave * std::log2(seconds / kShortest);
    bin = std::size_t(std::min(place, double(bins_.size() - 1)));
  }
  ++bins_[bin];
  ++count_;
  most_ = std::max(most_, seconds);
}

double Histogram::quantile(double part) const {
  const double wanted = std::max(1.0, std::ceil(part * double(count_)));
  double so_far = 0;
  for (std::size_t bin = 0; bin < bins_.size() && count_ > 0; ++bin) {
    so_far += double(bins_[bin]);
    if (so_far < wanted) continue;
    if (bin == 0) return 0;
    return std::min(most_, kShortest * std::exp2((double(bin) - 0.5) / kPerOctave));
  }
  return 0;
}

}  // namespace lockstep::engine
