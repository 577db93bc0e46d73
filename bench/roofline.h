// SPDX-License-Identifier: MIT
// How long a training step must take on a device at least: each kernel as long as its operations
// take at the rate of a large product, or its bytes at the rate of a copy, whichever is longer; the
// kernels one after the other. What the kernels move and compute is counted (traffic_ops.h), the
// two rates are measured (ceilings.h).
//
// Plain values; one thread a call. Cost of counting: a graph of one row of memory.
#pragma once
#include <string>
#include <vector>

#include "bench/traffic_ops.h"
#include "engine/nn/graph_spec.h"
#include "engine/ops/update_rule.h"

namespace lockstep::bench {

struct Ceilings {
  double bytes = 0;       // read and written a second, by a copy
  double operations = 0;  // a second, by a large product in the type of the graph
};

// The kernels of one part of a step.
struct PartTraffic {
  std::string part;  // "input", "forward  conv1", "loss", "backward conv1", "sums and updates"
  std::vector<Traffic> kernels;
  double bytes() const;
  double operations() const;
  double seconds(const Ceilings& ceilings) const;
};

// Of one replica that has so many rows of the batch, among so many replicas on its device, whose
// sums and updates are one kernel, the update inside.
struct StepTraffic {
  std::vector<PartTraffic> parts;
  double bytes() const;
  double operations() const;
  double seconds(const Ceilings& ceilings) const;
};
StepTraffic count_step(const engine::GraphSpec& spec, engine::DType dtype, std::size_t rows,
                       const engine::UpdateRule& rule, int replicas);

}  // namespace lockstep::bench
