// SPDX-License-Identifier: MIT
// Collects the wrong elements in all results of a benchmark, lockstep's and its rival's. They give
// a line each and decide the program's exit code. The same on all ranks. One thread.
#pragma once
#include <string>
#include <vector>

#include "tools/bench/turns.h"

namespace lockstep::tools::bench {

class Verdict {
 public:
  // Adds one line of results; an empty value counts as not compared.
  void add(const Wrong& wrong) { bench::add(wrong_, wrong); }
  void add_rival(const Wrong& wrong) { bench::add(rival_wrong_, wrong); }
  bool right() const { return wrong_.value_or(0) == 0 && rival_wrong_.value_or(0) == 0; }
  // Returns a line per kind of wrong results; empty if all were right. `rival`: its name.
  std::vector<std::string> lines(const std::string& rival) const;

 private:
  Wrong wrong_, rival_wrong_;
};

}  // namespace lockstep::tools::bench
