// SPDX-License-Identifier: MIT
// Throughput of several ranks compared with that of one rank. Pure.
#pragma once
#include <vector>

namespace lockstep::tools::bench {

struct Scaled {
  int ranks = 1;
  double step = 0;  // seconds, median
  double examples_per_second = 0;
  // Returns the throughput over `ranks` times that of one rank; 1 is perfect scaling.
  double efficiency(const Scaled& alone) const {
    return examples_per_second / (ranks * alone.examples_per_second);
  }
};

// Returns the numbers of ranks to try: 1, 2, 4, ... and `all`.
std::vector<int> doubled(int all);

}  // namespace lockstep::tools::bench
