// SPDX-License-Identifier: MIT
// Updates of arenas whose segments are not alike: a call of a kernel is about one segment, or on a
// device, where a call costs the most, about many that differ in their decay alone.
//
// Norms of layers. A part is what a segment has in one block, and of each part the norms hold two
// numbers: the squares of its gradients, and of its weights. From part to part, in the arena's
// order, the block's number or the segment's grows and neither falls, so their sum is another for
// each part: its place. All parts of a segment are added in this order, so a norm has the same bits
// on all ranks and for all buckets. The squares of all buckets are taken before the first update:
// the weights are those that the gradients were made with.
#include <algorithm>

#include "collectives/run/executor.h"

namespace lockstep::collectives {

std::size_t OwnedState::segment(std::size_t offset) const {
  const auto found = std::ranges::upper_bound(segments, offset, {}, &engine::UpdateSegment::end);
  engine::invariant(found != segments.end(), "an element behind the last segment");
  return std::size_t(found - segments.begin());
}

bool Executor::by_segments(const Step& step) const {
  if (owned_.segments.empty()) return false;
  if (step.epilogue == Epilogue::kUpdate) return true;
  return step.epilogue == Epilogue::kSquares && owned_.rule->needs() == engine::Needs::kLayerNorms;
}

bool Executor::joins_segments(const Step& step) const {
  return by_segments(step) && step.epilogue == Epilogue::kUpdate && !ops_.in_host_memory() &&
         owned_.rule->needs() != engine::Needs::kLayerNorms;
}

// How many of `count` elements from `at` on, in that segment, one call may be about; where the
// decay turns among them becomes turns_.
std::size_t Executor::join_segments(std::size_t segment, std::size_t at, std::size_t count) {
  turns_.clear();
  for (; owned_.segments[segment].end < at + count; ++segment) {
    const std::size_t end = owned_.segments[segment].end - at;
    if (owned_.segments[segment].decays == owned_.segments[segment + 1].decays) continue;
    if (turns_.size() == engine::kMostTurns) return end;
    turns_.push_back(end);
  }
  return count;
}

// For elements from `at` on, the first of them of that segment.
void Executor::segment_arguments(const Entry& entry, std::size_t segment, std::size_t at,
                                 engine::ReduceArguments& arguments) const {
  if (arguments.epilogue == Epilogue::kSquares) {
    arguments.squares = norms() + engine::squares_of_part(at / engine::kBlock, segment);
    arguments.squares_step = 2;
    return take_weight_squares(entry, at, arguments);
  }
  arguments.decays = owned_.segments[segment].decays;
  if (owned_.rule->needs() == engine::Needs::kLayerNorms)
    arguments.found_rate = owned_.memory.local_rates + segment;
}

void Executor::take_weight_squares(const Entry& entry, std::size_t at,
                                   const engine::ReduceArguments& of_gradients) const {
  const std::byte* const weights[] = {
      address(entry, {rank_, Space::kWeight, at}, of_gradients.dtype, 0)};
  engine::ReduceArguments arguments;
  arguments.dtype = of_gradients.dtype;
  arguments.from = weights;
  arguments.count = of_gradients.count;
  arguments.epilogue = Epilogue::kSquares;
  arguments.squares = of_gradients.squares + 1;
  arguments.squares_step = of_gradients.squares_step;
  ops_.reduce(arguments);
}

}  // namespace lockstep::collectives
