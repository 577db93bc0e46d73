// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/server/variable_shard.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace lockstep::strategies {

using engine::Range;

namespace {

// Returns whether the rule uses the step: only Adam's moments do.
bool asks_for_step(const engine::UpdateRule& rule) {
  return rule.kind != engine::UpdateKind::kSgd;
}

}  // namespace

VariableShard::VariableShard(const ShardSpec& s, const engine::UpdateRule& rule,
                             const MemoryBudget* budget)
    : spec(s),
      weights(s.elements(), size_of(s.dtype), budget),
      updates(s.elements()),
      assigned(s.elements()) {
  if (budget != nullptr) runs_ = budget->add(0);
  if (spec.frozen) return;
  for (std::size_t slot = 0; slot < rule.slots(); ++slot)
    slots.emplace_back(spec.elements(), size_of(spec.dtype), budget);
  if (spec.sparse && asks_for_step(rule)) row_updates.resize(spec.rows);
}

Range VariableShard::row(std::size_t row_of_variable) const {
  const std::size_t width = spec.row_elements(), row = row_of_variable - spec.first_row;
  return {row * width, (row + 1) * width};
}

void VariableShard::reserve(std::span<const Range> ranges) {
  weights.reserve(ranges);
  for (ChunkedArray& slot : slots) slot.reserve(ranges);
}

// Returns the range, split at changes of the number of updates.
std::vector<RangeValues::Run> VariableShard::steps(Range range) const {
  if (!spec.sparse) return updates.runs(range);
  const std::size_t row = range.begin / spec.row_elements();
  return {{range, row_updates.empty() ? 0 : row_updates[row]}};
}

void VariableShard::update(Range range, const Gradients& gradients, const UpdateTerms& terms) {
  const std::size_t width = size_of(spec.dtype);
  std::vector<const std::byte*> from;
  engine::StepState state;
  state.rate = terms.rate;
  engine::ReduceArguments arguments;
  arguments.dtype = spec.dtype;
  arguments.epilogue = engine::Epilogue::kUpdate;
  arguments.scale = terms.scale;
  arguments.update.rule = terms.rule;
  arguments.update.decays = spec.decays;
  arguments.update.state = &state;
  for (const RangeValues::Run& run : steps(range)) {
    state.step = run.value;
    weights.write(run.range, [&](Range part, const std::byte* old, std::byte* now) {
      std::array<std::byte*, engine::UpdateRule::kMaxSlots> kept{};
      for (std::size_t slot = 0; slot < slots.size(); ++slot)
        kept[slot] = slots[slot].writable(part);
      for (std::size_t at = part.begin; at < part.end;) {
        const Range block{at, std::min(part.end, at + kBlock)};
        const std::size_t offset = (at - part.begin) * width;
        std::byte* const to = now + offset;
        gradients(block, from);
        arguments.from = from;
        arguments.to = {&to, 1};
        arguments.count = block.size();
        arguments.update.weight = old + offset;
        for (std::size_t slot = 0; slot < slots.size(); ++slot)
          arguments.update.slots[slot] = kept[slot] + offset;
        terms.ops->reduce(arguments);
        at = block.end;
      }
    });
  }
}

void VariableShard::count_update(Range range) {
  if (!spec.sparse) {
    updates.add(range, 1);
    count_runs();
  } else if (!row_updates.empty()) {
    ++row_updates[range.begin / spec.row_elements()];
  }
}

void VariableShard::assign(Range range, const Gradients& values) {
  const std::size_t width = size_of(spec.dtype);
  std::vector<const std::byte*> from;
  weights.write(range, [&](Range part, const std::byte*, std::byte* now) {
    for (std::size_t at = part.begin; at < part.end;) {
      const Range block{at, std::min(part.end, at + kBlock)};
      values(block, from);
      std::memcpy(now + (at - part.begin) * width, from[0], block.size() * width);
      at = block.end;
    }
  });
  assigned.set(range, 1);
  count_runs();
}

void VariableShard::count_runs() {
  constexpr std::uint64_t kOfRun = 64;  // bytes
  runs_.resize((updates.count() + assigned.count()) * kOfRun);
}

}  // namespace lockstep::strategies
