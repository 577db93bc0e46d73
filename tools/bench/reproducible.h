// SPDX-License-Identifier: MIT
// Measures the cost of sums that have the same bits in every order. An all-reduce of the lower
// layer is timed plain and reproducible, interleaved, with one algorithm, over memory of the
// caller. A final sum adds numbers of very different magnitude, so that runs can compare the bits
// of its result. Collective; one thread per rank.
#pragma once
#include <cstdint>
#include <string>

#include "tools/bench/rank.h"
#include "tools/bench/row.h"
#include "tools/bench/turns.h"

namespace lockstep::tools::bench {

struct Reproducible {
  Task task;
  std::size_t bytes = 0, count = 0;  // per rank
  Choice choice;
  double plain_us = 0, reproducible_us = 0;  // medians
  std::uint64_t bits = 0;                    // checksum of the result
  Wrong wrong;
  collectives::ProcessorWait wait;
  double times() const { return reproducible_us / plain_us; }
};

Reproducible reproducible(const Rank& rank, Meeting& meeting, const Setting& setting,
                          const Choice& choice, std::size_t count);

std::string reproducible_heading(Form form);  // empty in JSON
std::string to_text(const Reproducible& found, Form form);

}  // namespace lockstep::tools::bench
