// SPDX-License-Identifier: MIT
#include "strategies/mirror.h"

#include <algorithm>

#include "engine/base/error.h"

namespace lockstep::strategies {

using collectives::Space;

ArenaLayout arena_layout(const engine::Graph& graph, const StepDesign& design) {
  constexpr std::size_t kPage = 4096;
  const std::size_t width = engine::size_of(graph.dtype());
  // Gradients and weights are cut at blocks, so the last block is there whole.
  auto blocks = [&](std::size_t elements) {
    return (elements + engine::kBlock - 1) / engine::kBlock * engine::kBlock * width;
  };
  ArenaLayout layout;
  auto place = [&](Space space, std::size_t bytes) {
    layout.offset[int(space)] = layout.bytes;
    layout.bytes += (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  };
  place(Space::kGradient, blocks(graph.trainable()));
  place(Space::kWeight, blocks(graph.parameters()));
  place(Space::kExchange, design.exchange_bytes);
  place(Space::kScratch, design.scratch_bytes);
  place(Space::kNorms, design.norms_bytes);
  return layout;
}

Mirror::Mirror(int r, const engine::GraphSpec& spec, std::unique_ptr<engine::Ops> o,
               std::size_t rows, std::uint64_t run_seed)
    : OwnOps{std::move(o)}, Replica(r, spec, *own_ops, rows), Context(*own_ops) {
  Replica::context = this;
  Context::state = &(Replica::state);
  Context::seed = run_seed;
  Replica::state.ids = graph.ids();
}

void Mirror::open(const StepDesign& design, const engine::UpdateRule& rule, collectives::Team& team,
                  std::unique_ptr<collectives::Transport> transport,
                  const collectives::ExecutorOptions& options) {
  design_ = &design;
  team_ = &team;
  transport_ = std::move(transport);
  graph.bind(space(Space::kWeight), space(Space::kGradient));
  for (int stage : design.updates) {
    for (engine::Range range : collectives::owned(design.plan[std::size_t(stage)].plan, rank)) {
      owned_.push_back(range);
      owned_elements_ += range.size();
    }
  }
  slots_ = engine::Buffer(rule.slots() * owned_elements_ * engine::size_of(graph.dtype()));
  collectives::OwnedState state;
  state.rule = &rule;
  state.ranges = owned_;
  state.slots = slots_.data();
  state.norm_blocks = design.norm_blocks;
  executor_.emplace(rank, team, transport_.get(), *own_ops, std::move(state), options);
  executor_->open(design.plan);
}

std::byte* Mirror::space(Space which) const {
  return team_->base(rank, which);
}

std::byte* Mirror::slot(std::size_t slot, std::size_t packed) const {
  return slots_.data() + (slot * owned_elements_ + packed) * engine::size_of(graph.dtype());
}

std::byte* Mirror::exchange(int point) {
  const engine::Range range = design_->points[std::size_t(point)];
  return space(Space::kExchange) + range.begin * engine::size_of(graph.dtype());
}

void Mirror::reduce(int point) {
  const int stage = design_->reductions[std::size_t(point)];
  for (int update : design_->updates) reductions_beside += !executor_->done(update);
  executor_->start(stage, nullptr);
  executor_->wait(stage);
}

}  // namespace lockstep::strategies
