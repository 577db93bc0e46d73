// SPDX-License-Identifier: MIT
#include "strategies/synchronous/mirror.h"

#include <algorithm>

#include "collectives/memory/mapped_memory.h"
#include "engine/base/error.h"
#include "engine/device/process_sharing.h"

namespace lockstep::strategies {

using collectives::Space;

ArenaLayout arena_layout(const engine::Graph& graph, const StepDesign& design) {
  const std::size_t width = engine::size_of(graph.dtype());
  // Gradients and weights are cut at blocks, so the last block is complete.
  auto blocks = [&](std::size_t elements) {
    return (elements + engine::kBlock - 1) / engine::kBlock * engine::kBlock * width;
  };
  ArenaLayout layout;
  auto place = [&](Space space, std::size_t bytes) {
    layout.offset[int(space)] = layout.bytes;
    layout.bytes += collectives::whole_pages(std::max<std::size_t>(bytes, 1));
  };
  place(Space::kGradient, blocks(graph.trainable()));
  place(Space::kWeight, blocks(graph.parameters()));
  place(Space::kExchange, design.space.exchange_bytes);
  place(Space::kScratch, design.space.scratch_bytes);
  place(Space::kNorms, design.space.norms_bytes);
  return layout;
}

std::size_t kept_bytes(const engine::UpdateRule& rule, engine::DType dtype, std::size_t owned) {
  return engine::values_kept(rule, dtype) * owned * engine::size_of(engine::computed_in(dtype));
}

std::size_t widened_bytes(const engine::Graph& graph) {
  if (!engine::has_master(graph.dtype())) return 0;
  return (graph.parameters() - graph.trainable()) *
         engine::size_of(engine::computed_in(graph.dtype()));
}

Mirror::Mirror(int r, const engine::GraphSpec& spec, OwnOps o, std::size_t rows,
               std::uint64_t run_seed, engine::GraphOptions options)
    : OwnOps(std::move(o)),
      Replica(r, spec, *own_ops, rows,
              {options.recompute, options.compact_rows, host_ops.get(), options.device}),
      Context(*own_ops) {
  Replica::context = this;
  Context::state = own_ops->publish(Replica::state);
  Context::seed = run_seed;
  Replica::state.ids = graph.ids();
  averaged.assign(graph.statistic_values().begin(), graph.statistic_values().end());
}

void Mirror::open(const StepDesign& design, const engine::UpdateRule& rule, collectives::Team& team,
                  std::unique_ptr<collectives::Transport> transport,
                  const collectives::ExecutorOptions& options) {
  design_ = &design;
  team_ = &team;
  transport_ = std::move(transport);
  graph.bind(space(Space::kWeight), space(Space::kGradient));
  for (int stage : design.stages.updates) {
    for (engine::Range range : collectives::owned(design.plan[std::size_t(stage)].plan, rank)) {
      owned_.push_back(range);
      owned_elements_ += range.size();
    }
  }
  masters_at_ = rule.slots();
  slots_ = own_ops->allocate(kept_bytes(rule, graph.dtype(), owned_elements_),
                             "what the optimizer keeps of each weight");
  widened_ = engine::Buffer(widened_bytes(graph));
  collectives::OwnedState state;
  state.rule = &rule;
  state.ranges = owned_;
  state.slots = slots_.data();
  state.norm_blocks = design.space.norm_blocks;
  state.segments = design.segments;
  state.memory = take_factors(rule, design);
  if (rule.scaling.dynamic) loss_scale.emplace(*own_ops, state.memory.loss_scale);
  Replica::state.loss_scale = rule.scaling.start;
  executor_.emplace(rank, team, transport_.get(), *own_ops, std::move(state), options);
  const bool on_device = !own_ops->in_host_memory();
  const std::size_t messages = collectives::WireStaging::bytes(design.plan, rank, on_device);
  executor_->open(design.plan, own_ops->allocate_shared(messages));
}

// Allocates and initializes the values that updates need of all gradients.
engine::UpdateMemory Mirror::take_factors(const engine::UpdateRule& rule,
                                          const StepDesign& design) {
  if (rule.needs() == engine::Needs::kNothing) return {};
  const std::size_t segments = design.segments.size();
  const engine::Buffer start(engine::UpdateMemory::bytes(segments));
  engine::UpdateMemory::in(start.data(), segments).begin(rule, design.segments);
  found_ = own_ops->allocate(start.bytes(), "what updates need of all gradients");
  own_ops->write(start.data(), found_.data(), start.bytes());
  own_ops->synchronize();
  return engine::UpdateMemory::in(found_.data(), segments);
}

std::byte* Mirror::space(Space which) const {
  return team_->base(rank, which);
}

std::byte* Mirror::space(Space which, int of) const {
  return team_->base(of, which);
}

std::size_t ArenaLayout::space_bytes(Space space) const {
  const int i = int(space);
  return (i + 1 == collectives::kSpaces ? bytes : offset[i + 1]) - offset[i];
}

std::array<std::byte*, collectives::kSpaces> Mirror::take_spaces(const ArenaLayout& layout,
                                                                 std::byte* shared) {
  constexpr const char* kNames[] = {"the gradients", "the weights", "", "scratch of the all-reduce",
                                    "the squares of gradients"};
  std::array<std::byte*, collectives::kSpaces> bases{};
  for (int i = 0; i < collectives::kSpaces; ++i) {
    const Space space = Space(i);
    std::size_t bytes = layout.space_bytes(space);
    const bool of_host = space == Space::kExchange;
    if (of_host && shared != nullptr) {
      bases[std::size_t(i)] = shared;
      continue;
    }
    if (shared != nullptr) bytes = std::max(bytes, engine::ProcessSharing::kShareUnit);
    spaces_.push_back(of_host ? own_ops->allocate_shared(bytes)
                              : own_ops->allocate(bytes, kNames[i]));
    bases[std::size_t(i)] = spaces_.back().data();
  }
  return bases;
}

std::byte* Mirror::host_weights() const {
  return own_ops->in_host_memory() ? space(Space::kWeight) : copies_.weights.data();
}

void Mirror::download() {
  if (loss_scale) loss_scale->download();
  if (own_ops->in_host_memory()) return;
  const std::size_t bytes = graph.parameters() * engine::size_of(graph.dtype());
  if (copies_.weights.bytes() != bytes) copies_.weights = engine::Buffer(bytes);
  if (copies_.slots.bytes() != slots_.bytes()) copies_.slots = engine::Buffer(slots_.bytes());
  own_ops->read(space(Space::kWeight), copies_.weights.data(), bytes);
  own_ops->read(slots_.data(), copies_.slots.data(), slots_.bytes());
}

void Mirror::upload() {
  if (own_ops->in_host_memory()) return;
  own_ops->write(copies_.weights.data(), space(Space::kWeight), copies_.weights.bytes());
  own_ops->write(copies_.slots.data(), slots_.data(), slots_.bytes());
  own_ops->synchronize();
}

std::byte* Mirror::slot(std::size_t kept, std::size_t packed) const {
  return (own_ops->in_host_memory() ? slots_ : copies_.slots).data() +
         (kept * owned_elements_ + packed) * engine::size_of(slot_dtype());
}

void Mirror::each_owned(
    const std::function<void(const engine::Parameter&, engine::Range, std::size_t)>& visit) const {
  std::size_t packed = 0;
  for (const engine::Range owned : owned_) {
    for (const engine::Parameter& parameter : graph.layout()) {
      const engine::Range part{std::max(owned.begin, parameter.range.begin),
                               std::min(owned.end, parameter.range.end)};
      if (part.begin < part.end && !parameter.frozen)
        visit(parameter, part, packed + part.begin - owned.begin);
    }
    packed += owned.size();
  }
}

void Mirror::set_masters(std::uint64_t run_seed) {
  if (!engine::has_master(graph.dtype())) return;
  each_owned([&](const engine::Parameter& parameter, engine::Range part, std::size_t packed) {
    engine::initialise(parameter.initial, run_seed, parameter.name,
                       {slot(masters_at_, packed), {part.size()}, slot_dtype()},
                       part.begin - parameter.range.begin);
  });
}

std::byte* Mirror::widened(const engine::Parameter& frozen) const {
  auto* const to =
      reinterpret_cast<float*>(widened_.data()) + frozen.range.begin - graph.trainable();
  const std::byte* const from = host_weights();
  for (std::size_t i = 0; i < frozen.range.size(); ++i)
    to[i] = float(engine::number_at(from, graph.dtype(), frozen.range.begin + i));
  return reinterpret_cast<std::byte*>(to);
}

std::byte* Mirror::exchange(int point) {
  const engine::Range range = design_->space.points[std::size_t(point)];
  return space(Space::kExchange) + range.begin * sizeof(double);
}

void Mirror::reduce(int point) {
  const int stage = design_->stages.reductions[std::size_t(point)];
  for (int update : design_->stages.updates) overlapped.reductions += !executor_->done(update);
  own_ops->reduce_behind_kernels();
  executor_->start(stage, nullptr);
  executor_->wait(stage);
  own_ops->go_behind_reductions();
}

void Mirror::record(engine::Timeline* timeline) {
  executor_->observe(nullptr);
  if (timeline == nullptr) return;
  timeline_.record(*timeline, design_->plan);
  executor_->observe(&timeline_);
}

}  // namespace lockstep::strategies
