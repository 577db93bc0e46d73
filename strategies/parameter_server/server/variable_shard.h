// SPDX-License-Identifier: MIT
// One shard on a server: weights, optimizer slots, and how often each element was updated, which is
// the optimizer's step there. Slots and counts of a frozen shard are not there.
//
// Threads: the owner of the shard holds `mutex`: shared for what is const, alone for the rest.
#pragma once
#include <cstdint>
#include <functional>
#include <shared_mutex>
#include <span>
#include <vector>

#include "engine/ops/ops.h"
#include "strategies/parameter_server/server/chunked_array.h"
#include "strategies/parameter_server/server/job_spec.h"
#include "strategies/parameter_server/server/memory_budget.h"
#include "strategies/parameter_server/server/range_values.h"

namespace lockstep::strategies {

// What all elements of an update have in common.
struct UpdateTerms {
  const engine::Ops* ops = nullptr;
  const engine::UpdateRule* rule = nullptr;
  double rate = 0;
  double scale = 1;  // of the gradients' sum
};

class VariableShard {
 public:
  // Zeros. Throws Error(kIo) where there is no memory.
  VariableShard(const ShardSpec& spec, const engine::UpdateRule& rule,
                const MemoryBudget* budget = nullptr);

  mutable std::shared_mutex mutex;
  const ShardSpec spec;
  ChunkedArray weights;
  std::vector<ChunkedArray> slots;

  // So that updates of these ranges take no memory for weights and slots. Throws Error(kIo).
  void reserve(std::span<const engine::Range> ranges);
  // The rule, once for each element of the range; gradients are added. They are asked for from
  // front to back, at most kBlock elements at a time. A sparse shard: within one row. Does not
  // count.
  static constexpr std::size_t kBlock = 16384;
  using Gradients = std::function<void(engine::Range block, std::vector<const std::byte*>& from)>;
  void update(engine::Range range, const Gradients& gradients, const UpdateTerms& terms);
  void count_update(engine::Range range);  // of a sparse shard: one row
  // Values from outside, asked for in the same way.
  void assign(engine::Range range, const Gradients& values);

  // Of a sparse shard with a rule that asks for the step; else counts_of_rows is empty, and
  // `updates` holds the counts of a dense shard.
  std::vector<std::int32_t> row_updates;
  RangeValues updates;
  RangeValues assigned;                                  // 1: has a value
  engine::Range row(std::size_t row_of_variable) const;  // its elements

 private:
  std::vector<RangeValues::Run> steps(engine::Range range) const;
  void count_runs();
  MemoryBudget::Share runs_;  // of `updates` and `assigned`, which ranges of a client's choice cut
};

}  // namespace lockstep::strategies
