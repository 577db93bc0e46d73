// SPDX-License-Identifier: MIT
// Measures scaling efficiency without a model. Computing is faked, gradients have the size of a
// model's, and everything in between is real. A step is a forward pass, a third of the computing,
// and a backward pass, two thirds. In the backward pass buckets become final and their sums begin.
// The step ends when all sums are complete. Faked computing leaves the core free, as a device
// would; meanwhile the rank's thread polls the sums. There are two ways of scaling:
//   weak: each of n ranks computes as long as one alone, on as many examples
//   strong: the n ranks share the examples of one, so each computes an n-th of the time
// Efficiency, in both, is the throughput of n ranks over n times that of one.
//
// With faked links, sums have few elements, and complete no sooner than the links would have
// carried the full gradients, one sum after the other. This predicts a cluster that need not exist,
// with this library's own work done for real. Collective; one thread per rank.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/gradients.h"
#include "tools/bench/rank.h"
#include "tools/bench/row.h"
#include "tools/bench/scaled.h"
#include "tools/bench/turns.h"

namespace lockstep::tools::bench {

struct ScalingTask {
  std::vector<Gradient> buckets = {};
  double compute = 0;       // seconds of one rank's step
  int batch = 0;            // examples per step
  bool fake_links = false;  // sums take the planner's predicted time
};

struct Scaling {
  Task task;
  Scaled weak, strong;
  double links = 0;  // seconds of all sums on faked links
  Wrong wrong;
};

// Measures both ways of scaling. `planned`: choices for the sizes of the buckets; none for one
// rank. `setting.iterations`: timed steps.
Scaling scaling(const Rank& rank, Meeting& meeting, const Setting& setting, const ScalingTask& task,
                const std::optional<collectives::Choices>& planned);

std::string scaling_heading(Form form);  // empty in JSON
std::string to_text(const Scaling& scaling, const Scaling& alone, Form form);

}  // namespace lockstep::tools::bench
