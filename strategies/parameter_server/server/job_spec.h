// SPDX-License-Identifier: MIT
// What the chief asks of a server when it opens a training job: which rows of which variables it
// keeps, by which rule they are updated, and whose gradients make an update. Plain values; equal
// ones ask for the same. Any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/ops/update_rule.h"
#include "engine/tensor/tensor.h"

namespace lockstep::strategies {

// Rows [first_row, first_row + rows) of axis 0 of a variable; a scalar has one row. Elements of a
// shard are counted from its own first one.
struct ShardSpec {
  std::string name = {};     // of the variable: "conv1.weight"
  engine::Shape shape = {};  // of the whole variable
  std::size_t first_row = 0, rows = 1;
  engine::DType dtype = engine::DType::kFloat32;  // float32 or float64
  bool frozen = false;                            // read only: no slots, no pushes
  bool sparse = false;                            // pushed by rows, pulled by rows or by ranges
  bool decays = true;                             // by the rule's weight decay

  std::size_t row_elements() const;
  std::size_t elements() const { return rows * row_elements(); }
  std::size_t first_element() const { return first_row * row_elements(); }  // within the variable
  std::uint64_t bytes(const engine::UpdateRule& rule) const;                // weights and slots
  bool operator==(const ShardSpec&) const = default;
};

// Elements [begin, end) of the shard with that number.
struct ShardRange {
  std::uint32_t shard = 0;
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
};

struct UpdatePolicy {
  bool synchronous = false;
  std::uint32_t workers = 1;         // who push: 0 .. workers - 1
  std::uint32_t aggregate = 0;       // synchronous: so many gradients make an update; 0: of all
  bool scale_rate = false;           // asynchronous: the rate is divided by 1 + staleness
  std::uint64_t most_staleness = 0;  // asynchronous: a push that is staler is dropped; 0: none is
  std::uint32_t needed() const { return aggregate == 0 ? workers : aggregate; }
  bool operator==(const UpdatePolicy&) const = default;
};

constexpr std::size_t kMostName = 1024;  // bytes of the name of a container or a variable

struct JobSpec {
  std::string placement_hash = {};  // of the whole placement, the same on all tasks
  std::vector<ShardSpec> shards = {};
  engine::UpdateRule rule = {};
  UpdatePolicy policy = {};
  std::uint64_t bytes() const;   // of all shards
  std::uint64_t memory() const;  // that a server takes for it, names and all
  bool operator==(const JobSpec&) const = default;
};

// The shape with these extents. Throws Error(kInvalid) naming `what` where there are more than a
// shape can have, or where their product is beyond 2^48 elements.
engine::Shape shape_of(std::span<const std::uint64_t> extents, const std::string& what);

// Throws Error(kInvalid) naming the shard and what is wrong: rows beyond the variable, two shards
// that share elements, a type that no rule can update, numbers that make no sense. Clipping by the
// global norm is refused, and so is lars: no server sees all gradients.
void check(const JobSpec& spec);

}  // namespace lockstep::strategies
