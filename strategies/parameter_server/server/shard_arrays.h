// SPDX-License-Identifier: MIT
// The arrays of a training job on one server, and the checks of requests for them.
//
// Thread-safe: each shard has a lock, and several are locked in ascending order. Throws
// Error(kInvalid) for a request that the shards do not allow, Error(kIo) if there is no memory.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/ops/ops.h"
#include "strategies/parameter_server/server/contributions.h"
#include "strategies/parameter_server/server/job_spec.h"
#include "strategies/parameter_server/server/memory_budget.h"
#include "strategies/parameter_server/server/named_variables.h"
#include "strategies/parameter_server/server/shard_orders.h"
#include "strategies/parameter_server/server/variable_shard.h"

namespace lockstep::strategies {

class ShardArrays {
 public:
  // `ops` and `budget` must outlive the arrays.
  ShardArrays(std::string container, JobSpec spec, const engine::Ops& ops,
              const MemoryBudget& budget);
  const JobSpec& spec() const { return spec_; }
  const std::string& container() const { return container_; }
  // The caller locks each shard that it uses.
  std::span<const std::unique_ptr<VariableShard>> all() const { return shards_; }
  // Returns the number of updates in one synchronous step: one per element of a dense shard, one
  // per sparse shard.
  std::size_t updates_per_step() const;
  std::size_t updates_of(const ShardRange& range) const;
  bool have_values() const;  // all elements were assigned

  // Throw if elements or rows do not exist or are named twice.
  void check(const std::vector<ShardRange>& ranges) const;
  void check(const ShardRows& rows) const;
  // Throw also if the body has another length or, for a push, if a shard is frozen.
  void check(const std::vector<ShardRange>& ranges, const std::vector<rpc::Slice>& body) const;
  void check(const PushOrder& push) const;

  // Returns the values of the ranges in order, in the wire's type. The slices share the shards'
  // memory.
  std::vector<rpc::Slice> read(const std::vector<ShardRange>& ranges, bool bfloat16) const;
  std::vector<rpc::Slice> read(const ShardRows& rows, bool bfloat16) const;  // a copy
  NamedVariables::Value read(std::size_t shard) const;
  // Returns a push's gradients, which wait for those of other workers.
  std::vector<Contributions::Gradient> keep(const PushOrder& push,
                                            const std::vector<ShardRange>& ranges) const;
  void assign(const std::vector<ShardRange>& ranges, const std::vector<rpc::Slice>& body);
  // Updates with one push's gradients.
  void update(const PushOrder& push, double rate);
  // Updates with the sum of several workers' gradients, scaled to that of all workers.
  void update(const Contributions::Complete& complete);
  std::uint64_t checksum() const;

 private:
  using Locks = std::vector<std::unique_lock<std::shared_mutex>>;
  std::string name_of(std::uint32_t shard) const;
  Locks lock(const std::vector<ShardRange>& ranges);
  void update_rows(VariableShard& shard, const Contributions::Complete& complete,
                   const UpdateTerms& terms);

  const std::string container_;
  const JobSpec spec_;
  const engine::Ops& ops_;
  const MemoryBudget& budget_;
  std::vector<std::unique_ptr<VariableShard>> shards_;
};

}  // namespace lockstep::strategies
