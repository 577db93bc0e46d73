// SPDX-License-Identifier: MIT
// Times things that all ranks do together, in turn, so that whatever else the machine does meets
// all alike. Before each call every rank writes its input, as a backward pass would; then all meet;
// after it every rank reads its result, as an optimizer would. The time of a call is that of the
// slowest rank. Collective; one thread a rank.
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

enum class Check { kAll, kLast, kNone };  // which rounds' results are compared with the exact ones

// Elements that were wrong, on all ranks, in checked rounds; none: nothing was compared.
using Wrong = std::optional<std::size_t>;
void add(Wrong& sum, const Wrong& more);

struct Setting {
  Task task = {};
  int iterations = 0;  // timed rounds; 0: by size, and fewer where they take long
  // Untimed rounds at the beginning of each turn; empty: 2, but none where rounds take
  // so long that a turn has but one.
  std::optional<int> warmup = {};
  Check check = Check::kAll;
  bool mpi = false;
  double wire = 0;  // bytes a second of a host's wire, as measured; 0: it was not
};

struct Times {  // microseconds, over so many rounds
  int rounds = 0;
  double median = 0, least = 0, p99 = 0;
  // Processor time of all ranks together, median; where ranks are processes and the size is large
  // enough for looking at it to cost nothing. 0: not measured.
  double processors = 0;
  // Of the rank that waited longest for a processor, in all rounds of all that was timed in turn.
  collectives::ProcessorWait wait = {};
};

// Returns the figures of these times, in microseconds; at least one.
Times times_of(std::vector<double> us);

// One thing that is timed: where its input and result lie, and what runs.
struct Variant {
  std::byte* input = nullptr;
  std::byte* result = nullptr;
  bool exact = true;  // its results are to be right
  std::function<void()> run = {};
  Shares shares = Shares::kSlices;
  // Set by time_in_turns; of what is not exact nothing is compared.
  Times times = {};
  Wrong wrong = {};
};

// `count` elements of each rank. Returns what was wrong of all variants together.
Wrong time_in_turns(const Rank& rank, Meeting& meeting, const Setting& setting, std::size_t count,
                    std::vector<Variant>& variants);

}  // namespace lockstep::tools::bench
