// SPDX-License-Identifier: MIT
#include "bench/roofline.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "engine/nn/graph.h"
#include "engine/nn/local_context.h"
#include "engine/ops/reduce.h"

namespace lockstep::bench {
namespace {

// Assigns kernels to the part that runs when they are counted.
class PartSums : public engine::Observer {
 public:
  explicit PartSums(TrafficOps& ops) : ops_(ops) {}
  void layer(const std::string& name, Pass pass, engine::Clock::time_point,
             engine::Clock::time_point, engine::Tensor) override {
    end_part(fmt::format("{:8} {}", pass == Pass::kForward ? "forward" : "backward", name));
  }
  void end_part(const std::string& part) {
    const auto found = std::ranges::find(all, part, &PartTraffic::part);
    PartTraffic& mine = found == all.end() ? all.emplace_back(PartTraffic{part, {}}) : *found;
    for (Traffic& kernel : ops_.take()) mine.kernels.push_back(std::move(kernel));
  }
  std::vector<PartTraffic> all;

 private:
  TrafficOps& ops_;
};

template <class Of>
double sum(const std::vector<PartTraffic>& parts, Of of) {
  return std::accumulate(parts.begin(), parts.end(), 0.0,
                         [&](double all, const PartTraffic& part) { return all + of(part); });
}

// Returns the bytes of one replica's part of the sums and updates. Each gradient is read once, and
// each weight is written once into every mirror. The optimizer state and the weights that the
// update changes (in 16 bits the master weights) exist once for all replicas.
double update_bytes(std::size_t elements, engine::DType dtype, const engine::UpdateRule& rule,
                    int replicas) {
  const double width = double(size_of(dtype)), kept = double(size_of(engine::computed_in(dtype)));
  const double once =
      2 * double(rule.slots()) * kept + (engine::has_master(dtype) ? 2 * kept : width);
  return double(elements) * (2 * width + once / replicas);
}

}  // namespace

double PartTraffic::bytes() const {
  double all = 0;
  for (const Traffic& kernel : kernels) all += kernel.bytes;
  return all;
}

double PartTraffic::operations() const {
  double all = 0;
  for (const Traffic& kernel : kernels) all += kernel.operations;
  return all;
}

double PartTraffic::seconds(const Ceilings& ceilings) const {
  double all = 0;
  for (const Traffic& kernel : kernels)
    all += std::max(kernel.bytes / ceilings.bytes, kernel.operations / ceilings.operations);
  return all;
}

double StepTraffic::bytes() const {
  return sum(parts, [](const PartTraffic& part) { return part.bytes(); });
}

double StepTraffic::operations() const {
  return sum(parts, [](const PartTraffic& part) { return part.operations(); });
}

double StepTraffic::seconds(const Ceilings& ceilings) const {
  return sum(parts, [&](const PartTraffic& part) { return part.seconds(ceilings); });
}

StepTraffic count_step(const engine::GraphSpec& spec, engine::DType dtype, std::size_t rows,
                       const engine::UpdateRule& rule, int replicas) {
  TrafficOps ops(dtype, rows);
  engine::Graph graph(spec, ops, 1);
  const std::size_t width = size_of(dtype);
  engine::Buffer weights(graph.parameters() * width), gradients(graph.trainable() * width);
  graph.bind(weights.data(), gradients.data());
  engine::LocalContext context(ops, graph);
  engine::StepState state;
  state.examples = 1;
  state.inverse_examples = 1;
  state.ids = graph.ids();
  context.state = &state;
  PartSums parts(ops);
  graph.observe(&parts);
  const auto nothing = [](engine::Range) {};
  ops.load(nullptr, graph.input());
  parts.end_part("input");
  graph.forward(context, nothing);
  graph.evaluate_loss(context, true);
  parts.end_part("loss");
  graph.backward(context, false, nothing);
  graph.observe(nullptr);
  parts.all.push_back(
      {"sums and updates",
       {{"sum and update", update_bytes(graph.trainable(), dtype, rule, replicas)}}});
  return {std::move(parts.all)};
}

}  // namespace lockstep::bench
