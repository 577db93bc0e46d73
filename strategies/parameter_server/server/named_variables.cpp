// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/server/named_variables.h"

#include <cstring>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/hash.h"
#include "engine/checkpoint/safetensors.h"
#include "strategies/parameter_server/server/job_spec.h"

namespace lockstep::strategies {

using engine::in_quotes;
using engine::require;

NamedVariables::Variable NamedVariables::copied(const std::string& name, const Value& value,
                                                const MemoryBudget& budget) const {
  constexpr std::uint64_t kOfVariable = 512;  // bytes besides its name and its elements
  require(!name.empty(), "a variable of container {} has no name", in_quotes(container_));
  require(name.size() <= kMostName, "the name {} in container {} has {} bytes; at most {} can be",
          in_quotes(name), in_quotes(container_), name.size(), kMostName);
  std::size_t came = 0;
  for (const rpc::Slice& slice : value.body) came += slice.size;
  require(came == value.bytes(), "{} of container {} has {} bytes as {} {}, and {} came",
          in_quotes(name), in_quotes(container_), value.bytes(), engine::name(value.dtype),
          to_string(value.shape), came);
  Variable variable{value.shape, value.dtype, std::make_shared<Held>()};
  variable.held->share =
      budget.take(kOfVariable + name.size() + engine::Buffer::taken(came),
                  fmt::format("{} of container {}", in_quotes(name), in_quotes(container_)));
  variable.held->memory = engine::Buffer(came);
  std::size_t at = 0;
  for (const rpc::Slice& slice : value.body) {
    if (slice.size > 0) std::memcpy(variable.held->memory.data() + at, slice.data, slice.size);
    at += slice.size;
  }
  return variable;
}

NamedVariables::Variable& NamedVariables::at(const std::string& name, const Variable& like) {
  const auto found = variables_.find(name);
  require(found != variables_.end(), "there is no {} in container {}", in_quotes(name),
          in_quotes(container_));
  const Variable& there = found->second;
  require(there.shape == like.shape && there.dtype == like.dtype,
          "{} of container {} is {} {}, not {} {}", in_quotes(name), in_quotes(container_),
          engine::name(there.dtype), to_string(there.shape), engine::name(like.dtype),
          to_string(like.shape));
  return found->second;
}

NamedVariables::Variable NamedVariables::put(const std::string& name, How how, Variable variable) {
  std::scoped_lock lock(mutex_);
  if (how == How::kInit) {
    require(!variables_.contains(name), "{} is in container {} already", in_quotes(name),
            in_quotes(container_));
  }
  Variable& there = how == How::kSet ? at(name, variable) : variables_[name];
  bytes_ += variable.held->memory.bytes();
  if (there.held) bytes_ -= there.held->memory.bytes();
  return std::exchange(there, std::move(variable));
}

// If another client sets the variable meanwhile, the addition counts as the earlier one.
void NamedVariables::add(const std::string& name, const Variable& variable,
                         const engine::Ops& ops) {
  std::scoped_lock one(adding_);
  std::shared_ptr<Held> before;
  {
    std::scoped_lock lock(mutex_);
    before = at(name, variable).held;
  }
  const std::byte* const from[] = {before->memory.data(), variable.held->memory.data()};
  std::byte* const to[] = {variable.held->memory.data()};
  engine::ReduceArguments sum;
  sum.dtype = variable.dtype;
  sum.from = from;
  sum.to = to;
  sum.count = variable.shape.elements();
  if (sum.count > 0) ops.reduce(sum);
  std::scoped_lock lock(mutex_);
  Variable& there = variables_.at(name);
  if (there.held == before) there.held = variable.held;
}

NamedVariables::Value NamedVariables::read(const std::string& name) const {
  std::scoped_lock lock(mutex_);
  const auto found = variables_.find(name);
  require(found != variables_.end(), "there is no {} in container {}", in_quotes(name),
          in_quotes(container_));
  const Variable& there = found->second;
  Value value{there.shape, there.dtype, {}};
  const engine::Buffer& memory = there.held->memory;
  if (memory.bytes() > 0) value.body.push_back({memory.data(), memory.bytes(), there.held});
  return value;
}

bool NamedVariables::holds(const std::string& name) const {
  std::scoped_lock lock(mutex_);
  return variables_.count(name) > 0;
}

std::size_t NamedVariables::size() const {
  std::scoped_lock lock(mutex_);
  return variables_.size();
}

std::uint64_t NamedVariables::bytes() const {
  std::scoped_lock lock(mutex_);
  return bytes_;
}

std::uint64_t NamedVariables::checksum(const engine::Ops& ops) const {
  std::scoped_lock lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [name, variable] : variables_) {
    sum += engine::hash(name + to_string(variable.shape)) *
           (1 + ops.checksum(variable.held->memory.data(), variable.held->memory.bytes(), 0));
  }
  return sum;
}

}  // namespace lockstep::strategies
