// SPDX-License-Identifier: MIT
// Norms of layers: a part is what a segment has in one block. The norms hold two numbers per part:
// the squares of its gradients and of its weights. From part to part, in the arena's order, the
// block's number or the segment's grows and neither falls. So their sum differs for each part, and
// is its place. All parts of a segment are added in this order, so a norm has the same bits on all
// ranks and for all buckets. The squares of all buckets are taken before the first update, so the
// weights are those that the gradients were made with.
#include "collectives/run/update_arguments.h"

#include <algorithm>
#include <utility>

namespace lockstep::collectives {

UpdateArguments::UpdateArguments(int rank, const Team& team, const engine::Ops& ops,
                                 OwnedState owned)
    : rank_(rank), team_(team), ops_(ops), owned_(std::move(owned)), elements_(owned_.elements()) {
  boundaries_.reserve(engine::kMostBoundaries);
  const bool finds = owned_.rule != nullptr && owned_.rule->needs() != engine::Needs::kNothing;
  if (!finds || owned_.memory.factors != nullptr) return;
  engine::invariant(ops.in_host_memory(), "an update on a device without memory for its factors");
  const std::size_t segments = owned_.segments.size();
  own_found_ = engine::Buffer(engine::UpdateMemory::bytes(segments));
  owned_.memory = engine::UpdateMemory::in(own_found_.data(), segments);
  owned_.memory.begin(*owned_.rule, owned_.segments);
}

std::size_t UpdateArguments::touched_bytes(const StepPlan& step) const {
  if (owned_.rule == nullptr) return 0;
  std::size_t bytes = 0;
  for (const Stage& stage : step)
    for (const int rank : team_.local())
      for (const Lane& lane : stage.plan.lanes[std::size_t(rank)])
        for (const Step& s : lane)
          if (s.epilogue == Epilogue::kUpdate)
            bytes += s.count * (engine::size_of(stage.plan.dtype) * (s.from.size() + s.to.size()) +
                                engine::size_of(engine::computed_in(stage.plan.dtype)) *
                                    engine::values_kept(*owned_.rule, stage.plan.dtype));
  return bytes;
}

void UpdateArguments::find_factors(const engine::StepState* state, std::uint64_t execution) {
  if (owned_.memory.factors == nullptr || found_ == execution) return;
  found_ = execution;
  engine::FactorArguments arguments;
  arguments.rule = owned_.rule;
  arguments.state = state;
  arguments.squares = norms();
  arguments.blocks = owned_.norm_blocks;
  arguments.segments = owned_.segments.size();
  arguments.memory = owned_.memory;
  ops_.find_factors(arguments);
}

bool UpdateArguments::by_segments(const Step& step) const {
  if (owned_.segments.empty()) return false;
  if (step.epilogue == Epilogue::kUpdate) return true;
  return step.epilogue == Epilogue::kSquares && owned_.rule->needs() == engine::Needs::kLayerNorms;
}

// Joins segments only on a device, where a call costs the most.
bool UpdateArguments::joins_segments(const Step& step) const {
  return by_segments(step) && step.epilogue == Epilogue::kUpdate && !ops_.in_host_memory() &&
         owned_.rule->needs() != engine::Needs::kLayerNorms;
}

std::size_t UpdateArguments::cut(const Step& step, std::size_t at, bool joins,
                                 engine::ReduceArguments& arguments) {
  const std::size_t segment = owned_.segment(at);
  if (joins) {
    arguments.count = join(segment, at, arguments.count);
    arguments.update.boundaries = boundaries_;
  } else {
    arguments.count = std::min(arguments.count, owned_.segments[segment].end - at);
  }
  if (step.epilogue == Epilogue::kSquares && at % engine::kBlock != 0)
    // The rest of a block comes first, and then blocks.
    arguments.count = std::min(arguments.count, engine::kBlock - at % engine::kBlock);
  return segment;
}

// Returns how many of `count` elements, from `at` in this segment on, one call may handle. Sets
// boundaries_ to where the decay changes among them.
std::size_t UpdateArguments::join(std::size_t segment, std::size_t at, std::size_t count) {
  boundaries_.clear();
  for (; owned_.segments[segment].end < at + count; ++segment) {
    const std::size_t end = owned_.segments[segment].end - at;
    if (owned_.segments[segment].decays == owned_.segments[segment + 1].decays) continue;
    if (boundaries_.size() == engine::kMostBoundaries) return end;
    boundaries_.push_back(end);
  }
  return count;
}

void UpdateArguments::add_update(const PlanState& plan, Cursor& cursor, const Step& step,
                                 engine::ReduceArguments& arguments) const {
  engine::invariant(owned_.rule, "a plan updates, and its executor has no rule");
  const DType dtype = plan.stage->plan.dtype;
  const std::size_t width = engine::size_of(engine::computed_in(dtype));
  const auto kept = [&](std::size_t k) {
    return owned_.slots + (k * elements_ + cursor.owned + cursor.element) * width;
  };
  if (cursor.element == 0) cursor.owned = owned_.local(step.from[0].offset);
  arguments.update.rule = owned_.rule;
  arguments.update.state = plan.step_state.load(std::memory_order_relaxed);
  arguments.update.weight = weight(step.from[0].offset + cursor.element, dtype);
  for (std::size_t slot = 0; slot < owned_.rule->slots(); ++slot)
    arguments.update.slots[slot] = kept(slot);
  if (engine::has_master(dtype)) arguments.update.master = kept(owned_.rule->slots());
  arguments.scale = 1;
  arguments.update.factors = owned_.memory.factors;
}

void UpdateArguments::add_segment(std::size_t segment, std::size_t at,
                                  engine::ReduceArguments& arguments) const {
  if (arguments.epilogue == Epilogue::kSquares) {
    arguments.squares = norms() + engine::squares_of_part(at / engine::kBlock, segment);
    arguments.squares_step = 2;
    return take_weight_squares(at, arguments);
  }
  arguments.update.decays = owned_.segments[segment].decays;
  if (owned_.rule->needs() == engine::Needs::kLayerNorms)
    arguments.update.found_rate = owned_.memory.local_rates + segment;
}

void UpdateArguments::take_weight_squares(std::size_t at,
                                          const engine::ReduceArguments& of_gradients) const {
  const std::byte* const weights[] = {weight(at, of_gradients.dtype)};
  engine::ReduceArguments arguments;
  arguments.dtype = of_gradients.dtype;
  arguments.from = weights;
  arguments.count = of_gradients.count;
  arguments.epilogue = Epilogue::kSquares;
  arguments.squares = of_gradients.squares + 1;
  arguments.squares_step = of_gradients.squares_step;
  ops_.reduce(arguments);
}

double* UpdateArguments::norms() const {
  return reinterpret_cast<double*>(team_.base(rank_, Space::kNorms));
}

std::byte* UpdateArguments::weight(std::size_t at, DType dtype) const {
  return team_.base(rank_, Space::kWeight) + at * engine::size_of(dtype);
}

}  // namespace lockstep::collectives
