// SPDX-License-Identifier: MIT
// Times one collective for one size, interleaved (turns.h): by each algorithm in place and out of
// place, the roofline, and MPI's own. Collective; one thread per rank.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/rank.h"
#include "tools/bench/turns.h"

namespace lockstep::tools::bench {

struct Measured {
  int iterations = 0;
  Times in_place;
  std::optional<Times> out_of_place;
  std::optional<double> roofline_us;  // median; between hosts: time on the wire
  std::optional<Times> rival;         // MPI or NCCL
  std::optional<Times> copied;        // with MPI: in buffers of each process
  Wrong wrong, rival_wrong;           // wrong elements of lockstep and the rival
  double copy_gb_s = 0;               // copy within the first device's memory
};

// Returns a result for each algorithm; roofline and rival are the same in all.
std::vector<Measured> measure(const Rank& rank, Meeting& meeting, const Setting& setting,
                              const std::vector<std::string>& algorithms, std::size_t count);

}  // namespace lockstep::tools::bench
