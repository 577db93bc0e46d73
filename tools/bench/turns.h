// SPDX-License-Identifier: MIT
// Times operations that all ranks perform together, interleaved, so that other work of the machine
// affects all alike. Before each call every rank writes its input, as a backward pass would; then
// all ranks meet. After it every rank reads its result, as an optimizer would. The time of a call
// is that of the slowest rank. Collective; one thread per rank.
#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "collectives/run/processor_wait.h"
#include "tools/bench/meeting.h"
#include "tools/bench/rank.h"
#include "tools/bench/work.h"

namespace lockstep::tools::bench {

// Rounds whose results are compared with the exact ones.
enum class Check { kAll, kLast, kNone };

// Wrong elements on all ranks in checked rounds; none if nothing was compared.
using Wrong = std::optional<std::size_t>;
void add(Wrong& sum, const Wrong& more);

struct Setting {
  Task task = {};
  int iterations = 0;  // timed rounds; 0: by size and duration
  // Untimed rounds at the beginning of each turn. Empty: 2, or 0 if rounds take so long that a turn
  // has only one.
  std::optional<int> warmup = {};
  Check check = Check::kAll;
  bool mpi = false;
  double wire = 0;  // measured bytes/s of a host's wire; 0: unknown
};

struct Times {  // in microseconds
  int rounds = 0;
  double median = 0, least = 0, p99 = 0;
  // Median of the processor time of all ranks together. It is measured if ranks are processes and
  // the size is so large that reading the clock costs nothing. 0: not measured.
  double processors = 0;
  // Wait of the rank that waited longest for a processor, in all rounds of all variants timed
  // together.
  collectives::ProcessorWait wait = {};
};

// Returns the figures of these times, in microseconds. `us` has at least one entry.
Times times_of(std::vector<double> us);

// One timed operation: the location of its input and result, and the function to run.
struct Variant {
  std::byte* input = nullptr;
  std::byte* result = nullptr;
  bool exact = true;  // its results are checked
  std::function<void()> run = {};
  Shares shares = Shares::kSlices;
  // Set by time_in_turns. The results of a variant that is not exact are not compared.
  Times times = {};
  Wrong wrong = {};
};

// Times the variants with `count` elements per rank. Returns the wrong elements of all variants
// together.
Wrong time_in_turns(const Rank& rank, Meeting& meeting, const Setting& setting, std::size_t count,
                    std::vector<Variant>& variants);

}  // namespace lockstep::tools::bench
