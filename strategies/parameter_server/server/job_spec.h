// SPDX-License-Identifier: MIT
// The chief's request for a training job on a server: the rows of variables to keep, their update
// rule, and the gradients per update. Plain values; thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/ops/update_rule.h"
#include "engine/tensor/tensor.h"

namespace lockstep::strategies {

// Holds the rows [first_row, first_row + rows) of axis 0 of a variable; a scalar has one row.
// Element numbers of a shard begin at its own first element.
struct ShardSpec {
  std::string name = {};     // the variable's: "conv1.weight"
  engine::Shape shape = {};  // shape of the whole variable
  std::size_t first_row = 0, rows = 1;
  engine::DType dtype = engine::DType::kFloat32;  // float32 or float64
  bool frozen = false;                            // read only: no slots, no pushes
  // Pushed by rows, pulled by rows or by ranges.
  bool sparse = false;
  bool decays = true;  // subject to the rule's weight decay

  std::size_t row_elements() const;
  std::size_t elements() const { return rows * row_elements(); }
  std::size_t first_element() const { return first_row * row_elements(); }  // within the variable
  std::uint64_t bytes(const engine::UpdateRule& rule) const;                // weights and slots
  bool operator==(const ShardSpec&) const = default;
};

// Holds the elements [begin, end) of a shard.
struct ShardRange {
  std::uint32_t shard = 0;
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
};

struct UpdatePolicy {
  bool synchronous = false;
  std::uint32_t workers = 1;  // pushing workers: 0 .. workers - 1
  // Synchronous: number of gradients per update; 0: one from each worker.
  std::uint32_t aggregate = 0;
  // Asynchronous: divides the rate by 1 + staleness.
  bool scale_rate = false;
  // Asynchronous: pushes with more staleness are dropped; 0: no limit.
  std::uint64_t most_staleness = 0;
  std::uint32_t needed() const { return aggregate == 0 ? workers : aggregate; }
  bool operator==(const UpdatePolicy&) const = default;
};

// Maximum bytes of a container's or variable's name.
constexpr std::size_t kMostName = 1024;

struct JobSpec {
  // Hash of the whole placement, which is the same on all tasks.
  std::string placement_hash = {};
  std::vector<ShardSpec> shards = {};
  engine::UpdateRule rule = {};
  UpdatePolicy policy = {};
  std::uint64_t bytes() const;  // bytes of all shards
  // Bytes that a server needs for the job, including names.
  std::uint64_t memory() const;
  bool operator==(const JobSpec&) const = default;
};

// Returns the shape with these extents. Throws Error(kInvalid) with `what` if there are more
// extents than a shape can have, or more than 2^48 elements.
engine::Shape shape_of(std::span<const std::uint64_t> extents, const std::string& what);

// Throws Error(kInvalid) with the shard and the fault: rows outside the variable, overlapping
// shards, a type that no rule can update, or invalid numbers. Clipping by the global norm and lars
// are refused, since no server sees all gradients.
void check(const JobSpec& spec);

}  // namespace lockstep::strategies
