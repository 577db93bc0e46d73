// SPDX-License-Identifier: MIT
#include "engine/nn/graph_schedule.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::engine {

GraphSchedule::GraphSchedule(const GraphSpec& spec, const GraphPlan& plan, const Ops& ops,
                             std::size_t rows, bool recompute)
    : plan_(plan), recomputes_(recompute), slice_rows_(ops.slice_rows()) {
  require(rows > 0, "model {}: a replica must hold at least one example", spec.name());
  plan_again(spec);
  plan_slices(rows);
  plan_moments();
  plan_apart(spec, ops, rows);
}

// Chains go slice by slice only if the device prefers slices and a batch has more rows than a
// slice.
void GraphSchedule::plan_slices(std::size_t rows) {
  chain_of_.assign(plan_.nodes.size(), kNone);
  if (slice_rows_ == 0 || slice_rows_ >= rows) return;
  for (std::size_t k = 0; k < plan_.chains.size(); ++k) {
    const auto [first, last] = plan_.chains[k];
    const auto in_block = [](const PlannedNode& node) { return node.block != 0; };
    if (recomputes_ && std::any_of(plan_.nodes.begin() + std::ptrdiff_t(first),
                                   plan_.nodes.begin() + std::ptrdiff_t(last) + 1, in_block)) {
      continue;  // blocks are not sliced
    }
    for (std::size_t i = first; i <= last; ++i) chain_of_[i] = k;
  }
}

// A value is inner if a layer of a block makes it, not the last one, and only that block reads it.
// The ones that backward needs are found from the block's end: what a backward reads, and what a
// layer reads that runs again for it.
void GraphSchedule::plan_again(const GraphSpec& spec) {
  again_.assign(plan_.nodes.size(), false);
  if (!recomputes_) return;
  require(!plan_.blocks.empty(),
          "model {} has no blocks that could be computed again: leave recompute out, or mark some "
          "(GraphSpec::begin_block)",
          spec.name());
  std::vector<bool> inner(plan_.storage.size(), false);  // per value
  for (const Block& block : plan_.blocks) {
    for (std::size_t i = block.last; i-- > block.first;) {
      const std::size_t value = plan_.nodes[i].output;
      inner[value] = value != plan_.storage.back();
      bool needed = plan_.nodes[i].backward && plan_.nodes[i].layer->backward_reads_output();
      for (std::size_t j = 0; j < plan_.nodes.size(); ++j) {
        const PlannedNode& reader = plan_.nodes[j];
        for (std::size_t k = 0; k < reader.inputs.size(); ++k) {
          if (plan_.storage[reader.inputs[k]] != value) continue;
          if (j > block.last) inner[value] = false;
          needed |= again_[j] || (reader.backward && reader.layer->backward_reads_input(k));
        }
      }
      again_[i] = needed && inner[value];
    }
  }
}

std::size_t GraphSchedule::block_that_ends(std::size_t i) const {
  if (!recomputes_) return kNone;
  const auto found = std::ranges::find(plan_.blocks, i, &Block::last);
  return found == plan_.blocks.end() ? kNone : std::size_t(found - plan_.blocks.begin());
}

void GraphSchedule::plan_moments() {
  again_moment_.assign(plan_.nodes.size(), kNone);
  backward_moment_.assign(plan_.nodes.size(), kNone);
  std::size_t moment = loss_moment() + 1;
  for (std::size_t i = plan_.nodes.size(); i-- > 0;) {
    const std::size_t block = block_that_ends(i);
    if (block != kNone) {
      for (std::size_t k = plan_.blocks[block].first; k < i; ++k) {
        if (again_[k]) again_moment_[k] = moment++;
      }
    }
    backward_moment_[i] = moment++;
  }
}

// Weight gradients go to the second queue while the layers there read at most `apart_bytes`
// together; a larger layer goes alone. If a layer reads a multiple of that, its kernels and most
// others fill the device, and two at once only compete for the cache. Then none goes there.
void GraphSchedule::plan_apart(const GraphSpec& spec, const Ops& ops, std::size_t rows) {
  constexpr std::size_t kFills = 4;
  const std::size_t count = plan_.nodes.size(), window = ops.apart_bytes();
  apart_.assign(count, false);
  running_.assign(count, 0);
  ends_apart_.assign(count, last_moment());
  std::deque<std::pair<std::size_t, std::size_t>> reading;  // nodes, and bytes
  std::size_t sum = 0;
  const auto bytes = [&](std::size_t value) {
    return rows * spec.shape({value}).elements() * size_of(ops.dtype());
  };
  for (std::size_t i = count; i-- > 0 && window > 0;) {
    const PlannedNode& node = plan_.nodes[i];
    const std::size_t from = plan_.storage[node.inputs[0]];
    if (node.range.empty() || chain_of_[i] != kNone || !plan_.wanted[from]) continue;
    if (!node.layer->gradients_apart()) continue;
    const std::size_t mine = bytes(from) + bytes(node.output);
    if (mine > kFills * window) return apart_.assign(count, false);
    while (!reading.empty() && (sum + mine > window || reading.size() + 1 == Ops::kMostApart)) {
      ends_apart_[reading.front().first] = backward_begin(i) - 1;
      sum -= reading.front().second;
      reading.pop_front();
    }
    apart_[i] = true;
    running_[i] = reading.size();
    reading.emplace_back(i, mine);
    sum += mine;
  }
}

}  // namespace lockstep::engine
