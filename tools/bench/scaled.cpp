// SPDX-License-Identifier: MIT
#include "tools/bench/scaled.h"

namespace lockstep::tools::bench {

std::vector<int> doubled(int all) {
  std::vector<int> counts;
  for (int count = 1; count < all; count *= 2) counts.push_back(count);
  counts.push_back(all);
  return counts;
}

}  // namespace lockstep::tools::bench
