// SPDX-License-Identifier: MIT
// Times one collective by one algorithm for one size: in place, out of place, its roofline and
// MPI's own, in turn within each round, so that whatever else the machine does meets all alike.
// Before each call every rank writes its input, as a backward pass would; then all meet; after it
// every rank reads its result, as an optimizer would. The time of a round is that of the slowest
// rank. Collective; one thread a rank.
#pragma once
#include <cstddef>
#include <optional>

#include "strategies/rank_link.h"
#include "tools/bench/meeting.h"
#include "tools/bench/work.h"

namespace lockstep::tools::bench {

enum class Check { kAll, kLast, kNone };  // which rounds' results are compared with the exact ones

struct Setting {
  Task task = {};
  int iterations = 0;  // 0: by size
  int warmup = 2;      // untimed rounds at the beginning of each turn
  Check check = Check::kAll;
  bool mpi = false;
};

struct Times {  // microseconds, over the rounds
  double median = 0, least = 0, p99 = 0;
};

struct Measured {
  int iterations = 0;
  Times in_place, out_of_place;
  std::optional<double> roofline_us, mpi_us;  // medians
  std::size_t wrong = 0;                      // elements, of all ranks and checked rounds
};

Measured measure(const strategies::Ranks& ranks, Meeting& meeting, const Setting& setting,
                 const std::string& algorithm, std::size_t count);

}  // namespace lockstep::tools::bench
