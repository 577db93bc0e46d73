// SPDX-License-Identifier: MIT
// How many ranks are worth how much, without a model: each rank's computing is faked, its gradients
// are as large as a model's, and what is measured is everything between. A step is a forward
// pass, a third of the computing, and a backward pass, two thirds, in which buckets of gradients
// become final and their sums begin; it ends when all sums are there.
//
// Computing leaves the core alone, as a device beside it would: until its time is over the rank's
// thread looks after the sums. Two ways of scaling are told apart:
//
//   weak: each of n ranks computes as long as one alone, on as many examples
//   strong: the n ranks share the examples of one, so each computes an n-th of the time
//
// Efficiency, in both, is the throughput of n ranks over n times that of one.
//
// Where links are faked, sums are of a few numbers, and are there no sooner than links would have
// carried all of them, one sum after the other: what a cluster that nobody need have would make of
// it, with this library's own work done for real. Collective; one thread a rank.
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
  int batch = 0;            // examples of it
  bool fake_links = false;  // whose times are the planner's, else the sums are made in full
};

struct Scaling {
  Task task;
  Scaled weak, strong;
  double links = 0;  // seconds of all sums on the faked links, one after the other
  Wrong wrong;
};

// `planned`: chooses for sums of the buckets' sizes; none for one rank. `setting.iterations`: steps
// that are timed.
Scaling scaling(const Rank& rank, Meeting& meeting, const Setting& setting, const ScalingTask& task,
                const std::optional<collectives::Choices>& planned);

std::string scaling_heading(Form form);  // empty in JSON
std::string to_text(const Scaling& scaling, const Scaling& alone, Form form);

}  // namespace lockstep::tools::bench
