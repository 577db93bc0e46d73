// SPDX-License-Identifier: MIT
// Counts how often one number must be doubled to reach another, interpolated linearly between
// powers. It is a logarithm for values that all ranks must compute alike: the last bits of a math
// library's log2 may differ from machine to machine. Pure and thread-safe.
#pragma once

namespace lockstep::collectives {

// Returns 0 if `to` is not above `from`. `from` must be positive.
constexpr double doublings(double from, double to) {
  if (to <= from) return 0;
  double count = 0;
  for (; from * 2 <= to; from *= 2) ++count;
  return count + (to - from) / from;
}

}  // namespace lockstep::collectives
