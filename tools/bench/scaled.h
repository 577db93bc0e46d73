// SPDX-License-Identifier: MIT
// What some ranks made of a step, beside what one made. Pure.
#pragma once
#include <vector>

namespace lockstep::tools::bench {

struct Scaled {
  int ranks = 1;
  double step = 0;  // seconds, median
  double images_per_second = 0;
  // Throughput over that of as many ranks alone; 1 where nothing is lost.
  double efficiency(const Scaled& alone) const {
    return images_per_second / (ranks * alone.images_per_second);
  }
};

// The numbers of ranks to try: 1, 2, 4, ... and all.
std::vector<int> doubled(int all);

}  // namespace lockstep::tools::bench
