// SPDX-License-Identifier: MIT
// How often one number must be doubled to reach another; between two powers in a straight line. A
// logarithm for what all ranks must find alike: no library of mathematics is asked, whose last bits
// may differ from machine to machine. Pure; any thread.
#pragma once

namespace lockstep::collectives {

// `from` is positive. 0 where `to` is not above it.
constexpr double doublings(double from, double to) {
  if (to <= from) return 0;
  double count = 0;
  for (; from * 2 <= to; from *= 2) ++count;
  return count + (to - from) / from;
}

}  // namespace lockstep::collectives
