// SPDX-License-Identifier: MIT
// Times one collective by one algorithm for one size, interleaved (turns.h): in place, out of
// place, its roofline and MPI's own. Collective; one thread per rank.
#pragma once
#include <cstddef>
#include <optional>
#include <string>

#include "tools/bench/rank.h"
#include "tools/bench/turns.h"

namespace lockstep::tools::bench {

struct Measured {
  int iterations = 0;
  Times in_place;
  std::optional<Times> out_of_place;
  std::optional<double> roofline_us;  // median; between hosts: time on the wire
  std::optional<Times> rival;         // MPI or NCCL
  Wrong wrong, rival_wrong;           // wrong elements of lockstep and the rival
  double copy_gb_s = 0;               // copy within the first device's memory
};

Measured measure(const Rank& rank, Meeting& meeting, const Setting& setting,
                 const std::string& algorithm, std::size_t count);

}  // namespace lockstep::tools::bench
