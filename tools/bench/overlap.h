// SPDX-License-Identifier: MIT
// Measures how much of an all-reduce a backward pass hides. Buckets of one size become ready one
// after the other while this rank's thread computes for as long as the all-reduce alone takes.
// Between blocks of its work the thread polls the buckets, as in training if replicas use all
// cores. The hidden time is what computing and all-reduce take less together than one after the
// other. Between hosts the wire works meanwhile. On one host the all-reduce uses the same cores,
// and nothing of it can be hidden. Collective; one thread per rank.
//
// The reason is that of one bucket.
#pragma once
#include <optional>
#include <string>

#include "tools/bench/rank.h"
#include "tools/bench/row.h"
#include "tools/bench/turns.h"

namespace lockstep::tools::bench {

inline constexpr int kBuckets = 8;

struct Overlap {
  Task task;
  std::size_t bytes = 0, count = 0;                      // per rank, all buckets together
  Choice choice;                                         // for one bucket
  double compute_us = 0, alone_us = 0, together_us = 0;  // medians
  Wrong wrong;
  collectives::ProcessorWait wait;
  // Returns the part of the sums' time that runs beside the backward pass. Returns nothing on one
  // host, where processors do both, and for noise: if both together took less time than the
  // backward pass alone.
  std::optional<double> hidden_percent() const {
    if (task.one_host() || together_us < compute_us) return std::nullopt;
    return 100 * (compute_us + alone_us - together_us) / alone_us;
  }
};

Overlap overlap(const Rank& rank, Meeting& meeting, const Setting& setting, const Choice& choice,
                std::size_t count);

std::string overlap_heading(Form form);  // empty in JSON
std::string to_text(const Overlap& overlap, Form form);

}  // namespace lockstep::tools::bench
