// SPDX-License-Identifier: MIT
// Computes the least time of a training step on a device. Each kernel takes the longer of two
// times: operations at the rate of a large product, or bytes at the rate of a copy. Kernels run one
// after the other. Bytes and operations are counted (traffic_ops.h); the two rates are measured
// (ceilings.h).
//
// Plain values; one thread per call. Counting costs a graph of one row of memory.
#pragma once
#include <string>
#include <vector>

#include "bench/traffic_ops.h"
#include "engine/nn/graph_spec.h"
#include "engine/ops/update_rule.h"

namespace lockstep::bench {

struct Ceilings {
  double bytes = 0;  // bytes/s read and written by a copy
  // Operations per second of a large product in the dtype of the graph.
  double operations = 0;
};

// Lists the kernels of one part of a step.
struct PartTraffic {
  // One of "input", "forward  conv1", "loss", "backward conv1", "sums and updates".
  std::string part;
  std::vector<Traffic> kernels;
  double bytes() const;
  double operations() const;
  double seconds(const Ceilings& ceilings) const;
};

// Lists the kernels of one replica that has `rows` rows of the batch and shares its device with
// `replicas` replicas. Sums and fused updates are one kernel.
struct StepTraffic {
  std::vector<PartTraffic> parts;
  double bytes() const;
  double operations() const;
  double seconds(const Ceilings& ceilings) const;
};
StepTraffic count_step(const engine::GraphSpec& spec, engine::DType dtype, std::size_t rows,
                       const engine::UpdateRule& rule, int replicas);

}  // namespace lockstep::bench
