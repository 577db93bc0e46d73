// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/server/job_spec.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/checkpoint/safetensors.h"
#include "strategies/parameter_server/server/chunked_array.h"

namespace lockstep::strategies {

using engine::in_quotes;
using engine::require;

namespace {

constexpr std::uint64_t kMostElements = std::uint64_t(1) << 48;
constexpr std::uint32_t kMostWorkers = 65536;

bool within(double value, double low, double high) {  // low <= value < high, and not NaN
  return value >= low && value < high;
}

void check_rule(const engine::UpdateRule& rule) {
  require(rule.kind != engine::UpdateKind::kLars,
          "the optimizer is lars, which needs the norms of whole weights and of their gradients at "
          "once; parameter servers see them in parts: train with another optimizer or strategy");
  require(rule.needs() == engine::Needs::kNothing,
          "the optimizer clips the global norm, which needs all gradients at once; no parameter "
          "server sees them all: train without clip_norm, or with another strategy");
  require(within(rule.momentum, 0, 1), "momentum {} is not in [0, 1)", rule.momentum);
  require(within(rule.beta1, 0, 1) && within(rule.beta2, 0, 1),
          "beta1 {} and beta2 {} must be in [0, 1)", rule.beta1, rule.beta2);
  require(std::isfinite(rule.epsilon) && rule.epsilon >= 0, "epsilon {} is no small number",
          rule.epsilon);
  require(std::isfinite(rule.weight_decay) && rule.weight_decay >= 0,
          "a weight decay of {} makes no sense", rule.weight_decay);
}

void check_policy(const UpdatePolicy& policy) {
  require(policy.workers >= 1 && policy.workers <= kMostWorkers, "{} workers; 1 to {} can be",
          policy.workers, kMostWorkers);
  require(policy.aggregate <= policy.workers, "gradients of {} workers are asked for, of {}",
          policy.aggregate, policy.workers);
}

void check_shard(const ShardSpec& shard) {
  const std::string name = in_quotes(shard.name);
  require(!shard.name.empty() && shard.name.find('@') == std::string::npos,
          "a variable may not be named {}: empty, or with an '@'", name);
  require(shard.name.size() <= kMostName, "the name {} has {} bytes; at most {} can be", name,
          shard.name.size(), kMostName);
  const std::size_t rows = shard.shape.rank() == 0 ? 1 : shard.shape[0];
  require(shard.first_row <= rows && shard.rows <= rows - shard.first_row,
          "{} rows from row {} on are not within {} of shape {}", shard.rows, shard.first_row, name,
          to_string(shard.shape));
  require(!shard.sparse || shard.row_elements() > 0, "{} is pushed by rows, and they are empty",
          name);
  require(shard.dtype == engine::DType::kFloat32 || shard.dtype == engine::DType::kFloat64,
          "{} is {}; optimizers update float32 and float64", name, engine::name(shard.dtype));
}

}  // namespace

std::size_t ShardSpec::row_elements() const {
  std::size_t elements = 1;
  for (std::size_t axis = 1; axis < shape.rank(); ++axis) elements *= shape[axis];
  return elements;
}

std::uint64_t ShardSpec::bytes(const engine::UpdateRule& rule) const {
  return std::uint64_t(elements()) * size_of(dtype) * (frozen ? 1 : 1 + rule.slots());
}

std::uint64_t JobSpec::bytes() const {
  std::uint64_t bytes = 0;
  for (const ShardSpec& shard : shards) bytes += shard.bytes(rule);
  return bytes;
}

std::uint64_t JobSpec::memory() const {
  constexpr std::uint64_t kOfShard = 1024, kOfWorker = 512;  // bytes besides names and arrays
  std::uint64_t bytes = placement_hash.size() + policy.workers * kOfWorker;
  for (const ShardSpec& shard : shards) {
    const std::uint64_t arrays = shard.frozen ? 1 : 1 + rule.slots();
    bytes += arrays * ChunkedArray::memory(shard.elements(), size_of(shard.dtype));
    if (shard.sparse) bytes += shard.rows * sizeof(std::int32_t);
    bytes += 2 * shard.name.size() + kOfShard;
  }
  return bytes;
}

engine::Shape shape_of(std::span<const std::uint64_t> extents, const std::string& what) {
  require(extents.size() <= engine::Shape::kMaxRank, "{} has {} extents; at most {} can be", what,
          extents.size(), engine::Shape::kMaxRank);
  engine::Shape shape;
  // Product of the extents that are not 0, so that the product of all extents is bounded, too.
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : extents) {
    const std::uint64_t factor = std::max<std::uint64_t>(extent, 1);
    require(factor <= kMostElements / elements, "{} has more than 2^48 elements", what);
    elements *= factor;
    shape.append(std::size_t(extent));
  }
  return shape;
}

void check(const JobSpec& spec) {
  check_rule(spec.rule);
  check_policy(spec.policy);
  std::uint64_t elements = 0;
  std::vector<const ShardSpec*> sorted;
  for (const ShardSpec& shard : spec.shards) {
    check_shard(shard);
    elements += shard.elements();
    require(elements <= kMostElements, "the shards have more than 2^48 elements");
    sorted.push_back(&shard);
  }
  std::sort(sorted.begin(), sorted.end(), [](const ShardSpec* a, const ShardSpec* b) {
    return a->name != b->name ? a->name < b->name : a->first_row < b->first_row;
  });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    const ShardSpec &a = *sorted[i - 1], &b = *sorted[i];
    if (a.name != b.name) continue;
    require(a.shape == b.shape && a.dtype == b.dtype && a.frozen == b.frozen &&
                a.sparse == b.sparse && a.decays == b.decays,
            "two shards of {} differ in shape, type or use", in_quotes(a.name));
    require(a.first_row + a.rows <= b.first_row, "two shards of {} share row {}", in_quotes(a.name),
            b.first_row);
  }
}

}  // namespace lockstep::strategies
