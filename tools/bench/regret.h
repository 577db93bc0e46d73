// SPDX-License-Identifier: MIT
// Measures the regret of the planner's choice for one size: its time over the time of the best
// algorithm. All algorithms are timed interleaved, and the fastest is the best. Choice and best are
// then timed again, because the time that selected an algorithm is too low on average. If the
// choice is the faster one then, it is the best. Algorithms with equal plans count as one; on one
// host, hierarchical is direct. Collective; one thread per rank.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/cost/planner.h"
#include "tools/bench/rank.h"
#include "tools/bench/row.h"
#include "tools/bench/turns.h"

namespace lockstep::tools::bench {

struct Regret {
  Task task;
  std::size_t bytes = 0, count = 0;  // per rank
  Choice choice;
  std::vector<std::pair<std::string, double>> us;  // of all, medians of the first sample
  std::string best;
  double choice_us = 0, best_us = 0;  // medians of the second sample
  Wrong wrong;
  collectives::ProcessorWait wait;                      // the worse of both samples
  double ratio() const { return choice_us / best_us; }  // 1 if the choice is the best
};

// Times the algorithms. `among`: names of algorithms that can serve the task.
Regret regret(const Rank& rank, Meeting& meeting, const Setting& setting, const Choice& choice,
              const std::vector<std::string>& among, std::size_t count);

// Returns the column names; empty in JSON. `columns`: all algorithms of a run. If a size lacks an
// algorithm, the cell is empty, or "-" in a table.
std::string heading(const std::vector<std::string>& columns, Form form);
std::string to_text(const Regret& regret, const std::vector<std::string>& columns, Form form);
// Returns a line for people: at how many sizes the choice was close to the best.
std::string summary(const std::vector<Regret>& regrets);

}  // namespace lockstep::tools::bench
