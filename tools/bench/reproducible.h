// SPDX-License-Identifier: MIT
// What it costs that sums have the same bits in every order: an all-reduce of the lower layer as it
// is, and reproducible, in turn, each by one algorithm, over memory of the caller's own. Then a sum
// of numbers that are far apart, whose bits everybody can compare. Collective; one thread a rank.
#pragma once
#include <cstdint>
#include <string>

#include "tools/bench/rank.h"
#include "tools/bench/row.h"
#include "tools/bench/turns.h"

namespace lockstep::tools::bench {

struct Reproducible {
  Task task;
  std::size_t bytes = 0, count = 0;  // of one rank
  Choice choice;
  double plain_us = 0, reproducible_us = 0;  // medians
  std::uint64_t bits = 0;                    // of the result: their checksum
  Wrong wrong;
  collectives::ProcessorWait wait;
  double times() const { return reproducible_us / plain_us; }
};

Reproducible reproducible(const Rank& rank, Meeting& meeting, const Setting& setting,
                          const Choice& choice, std::size_t count);

std::string reproducible_heading(Form form);  // empty in JSON
std::string to_text(const Reproducible& found, Form form);

}  // namespace lockstep::tools::bench
