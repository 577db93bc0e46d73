// SPDX-License-Identifier: MIT
// What was wrong in all results of a benchmark, lockstep's and MPI's, and what follows from it: a
// line for each, and the program's exit code. The same on all ranks. One thread.
#pragma once
#include <string>
#include <vector>

#include "tools/bench/turns.h"

namespace lockstep::tools::bench {

class Verdict {
 public:
  // Of one line of results; nothing where nothing was compared.
  void add(const Wrong& wrong) { bench::add(wrong_, wrong); }
  void add_mpi(const Wrong& wrong) { bench::add(mpi_wrong_, wrong); }
  bool right() const { return wrong_.value_or(0) == 0 && mpi_wrong_.value_or(0) == 0; }
  // `mpi_name`: of MPI's own. Empty where all was right.
  std::vector<std::string> lines(const std::string& mpi_name) const;

 private:
  Wrong wrong_, mpi_wrong_;
};

}  // namespace lockstep::tools::bench
