// SPDX-License-Identifier: MIT
// One shard on a server: weights, optimizer slots, and the number of updates of each element, which
// is the optimizer's step there. A frozen shard has no slots and counts.
//
// Threads: the shard's owner holds `mutex`, shared for const members and exclusively for the
// others.
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

// Holds what all elements of an update share.
struct UpdateTerms {
  const engine::Ops* ops = nullptr;
  const engine::UpdateRule* rule = nullptr;
  double rate = 0;
  double scale = 1;  // factor of the gradients' sum
};

class VariableShard {
 public:
  // Creates zeros. Throws Error(kIo) if memory is short.
  VariableShard(const ShardSpec& spec, const engine::UpdateRule& rule,
                const MemoryBudget* budget = nullptr);

  mutable std::shared_mutex mutex;
  const ShardSpec spec;
  ChunkedArray weights;
  std::vector<ChunkedArray> slots;

  // Prepares memory, so that updates of these ranges allocate none for weights and slots. Throws
  // Error(kIo).
  void reserve(std::span<const engine::Range> ranges);
  // Applies the rule once to each element of the range, with the sum of the gradients. `gradients`
  // is called from front to back, for at most kBlock elements at a time. In a sparse shard the
  // range lies in one row. Does not count the update.
  static constexpr std::size_t kBlock = 16384;
  using Gradients = std::function<void(engine::Range block, std::vector<const std::byte*>& from)>;
  void update(engine::Range range, const Gradients& gradients, const UpdateTerms& terms);
  void count_update(engine::Range range);  // a sparse shard's range is one row
  // Sets values from outside; calls `values` like `update` calls `gradients`.
  void assign(engine::Range range, const Gradients& values);

  // Updates per row of a sparse shard whose rule uses the step; else empty. `updates` has the
  // counts of a dense shard.
  std::vector<std::int32_t> row_updates;
  RangeValues updates;
  RangeValues assigned;                                  // 1: has a value
  engine::Range row(std::size_t row_of_variable) const;  // its elements

 private:
  std::vector<RangeValues::Run> steps(engine::Range range) const;
  void count_runs();
  // Memory of `updates` and `assigned`, whose runs depend on the clients' ranges.
  MemoryBudget::Share runs_;
};

}  // namespace lockstep::strategies
