// SPDX-License-Identifier: MIT
// What the planner's choice costs against the best algorithm, for one size. All algorithms are
// timed in turn, and the fastest is the best; then choice and best are timed in turn anew, since of
// what is chosen by a time that same time is too good. Algorithms whose plans are the same are one:
// a hierarchy of one host is direct. Collective; one thread a rank.
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
  std::size_t bytes = 0, count = 0;  // of one rank
  Choice choice;
  std::vector<std::pair<std::string, double>> us;  // of all, medians of the first sample
  std::string best;
  double choice_us = 0, best_us = 0;  // medians of the second
  Wrong wrong;
  collectives::ProcessorWait wait;                      // of the worse sample
  double ratio() const { return choice_us / best_us; }  // 1 where the choice is the best
};

// `among`: names of algorithms that can serve the task.
Regret regret(const Rank& rank, Meeting& meeting, const Setting& setting, const Choice& choice,
              const std::vector<std::string>& among, std::size_t count);

// Column names; empty in JSON. `columns`: all algorithms of a run, of which not every size has all:
// where it has not, its cell is empty, or "-" for people.
std::string heading(const std::vector<std::string>& columns, Form form);
std::string to_text(const Regret& regret, const std::vector<std::string>& columns, Form form);
// For people: at how many sizes the choice was as good.
std::string summary(const std::vector<Regret>& regrets);

}  // namespace lockstep::tools::bench
