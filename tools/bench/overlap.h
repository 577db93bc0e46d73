// SPDX-License-Identifier: MIT
// How much of an all-reduce a backward pass hides: buckets of one size become ready one after the
// other while this rank's thread computes, as long as the all-reduce alone takes, and looks after
// the buckets between blocks of its work, as training does where replicas use all cores. What is
// hidden is what computing and all-reduce take less together than one after the other. Between
// hosts the wire works meanwhile; on one host an all-reduce is work of the same cores, and nothing
// of it can be hidden. Collective; one thread a rank.
#pragma once
#include <string>

#include "tools/bench/rank.h"
#include "tools/bench/row.h"
#include "tools/bench/turns.h"

namespace lockstep::tools::bench {

inline constexpr int kBuckets = 8;

struct Overlap {
  Task task;
  std::size_t bytes = 0, count = 0;                      // of one rank, in all buckets together
  Choice choice;                                         // for one bucket
  double compute_us = 0, alone_us = 0, together_us = 0;  // medians
  Wrong wrong;
  collectives::ProcessorWait wait;
  double hidden_percent() const { return 100 * (compute_us + alone_us - together_us) / alone_us; }
};

Overlap overlap(const Rank& rank, Meeting& meeting, const Setting& setting, const Choice& choice,
                std::size_t count);

std::string overlap_heading(Form form);  // empty in JSON
std::string to_text(const Overlap& overlap, Form form);

}  // namespace lockstep::tools::bench
