// SPDX-License-Identifier: MIT
// What was wrong in all results of a benchmark, lockstep's and its rival's, and what follows from
// it: a line for each, and the program's exit code. The same on all ranks. One thread.
#pragma once
#include <string>
#include <vector>

#include "tools/bench/turns.h"

namespace lockstep::tools::bench {

class Verdict {
 public:
  // Of one line of results; nothing where nothing was compared.
  void add(const Wrong& wrong) { bench::add(wrong_, wrong); }
  void add_rival(const Wrong& wrong) { bench::add(rival_wrong_, wrong); }
  bool right() const { return wrong_.value_or(0) == 0 && rival_wrong_.value_or(0) == 0; }
  // `rival`: its name. Empty where all was right.
  std::vector<std::string> lines(const std::string& rival) const;

 private:
  Wrong wrong_, rival_wrong_;
};

}  // namespace lockstep::tools::bench
