// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/named_variables.h"

#include <cstring>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/hash.h"
#include "engine/train/safetensors.h"

namespace lockstep::strategies {

using engine::in_quotes;
using engine::require;

void NamedVariables::assign(const std::string& name, How how, const Value& value,
                            const engine::Ops& ops) {
  require(!name.empty(), "a variable of container {} has no name", in_quotes(container_));
  std::size_t came = 0;
  for (const rpc::Slice& slice : value.body) came += slice.size;
  require(came == value.bytes(), "{} of container {} has {} bytes as {} {}, and {} came",
          in_quotes(name), in_quotes(container_), value.bytes(), engine::name(value.dtype),
          to_string(value.shape), came);
  engine::Buffer memory(came);
  std::size_t at = 0;
  for (const rpc::Slice& slice : value.body) {
    if (slice.size > 0) std::memcpy(memory.data() + at, slice.data, slice.size);
    at += slice.size;
  }
  std::scoped_lock lock(mutex_);
  const auto found = variables_.find(name);
  if (how == How::kInit) {
    require(found == variables_.end(), "{} is in container {} already", in_quotes(name),
            in_quotes(container_));
  }
  if (how == How::kInit || how == How::kForce) {
    variables_.insert_or_assign(name, Variable{value.shape, value.dtype, std::move(memory)});
    return;
  }
  require(found != variables_.end(), "there is no {} in container {}", in_quotes(name),
          in_quotes(container_));
  Variable& there = found->second;
  require(there.shape == value.shape && there.dtype == value.dtype,
          "{} of container {} is {} {}, not {} {}", in_quotes(name), in_quotes(container_),
          engine::name(there.dtype), to_string(there.shape), engine::name(value.dtype),
          to_string(value.shape));
  if (how == How::kSet) {
    there.memory = std::move(memory);
  } else if (came > 0) {
    const std::byte* const from[] = {there.memory.data(), memory.data()};
    std::byte* const to[] = {there.memory.data()};
    engine::ReduceArguments sum;
    sum.dtype = value.dtype;
    sum.from = from;
    sum.to = to;
    sum.count = value.shape.elements();
    ops.reduce(sum);
  }
}

NamedVariables::Value NamedVariables::read(const std::string& name) const {
  std::scoped_lock lock(mutex_);
  const auto found = variables_.find(name);
  require(found != variables_.end(), "there is no {} in container {}", in_quotes(name),
          in_quotes(container_));
  const Variable& there = found->second;
  Value value{there.shape, there.dtype, {}};
  if (value.bytes() == 0) return value;
  const auto copy = std::make_shared<std::vector<std::byte>>(
      there.memory.data(), there.memory.data() + there.memory.bytes());
  value.body.push_back({copy->data(), copy->size(), copy});
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
  std::uint64_t bytes = 0;
  for (const auto& [name, variable] : variables_) bytes += variable.memory.bytes();
  return bytes;
}

std::uint64_t NamedVariables::checksum(const engine::Ops& ops) const {
  std::scoped_lock lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [name, variable] : variables_) {
    sum += engine::hash(name + to_string(variable.shape)) *
           (1 + ops.checksum(variable.memory.data(), variable.memory.bytes(), 0));
  }
  return sum;
}

}  // namespace lockstep::strategies
