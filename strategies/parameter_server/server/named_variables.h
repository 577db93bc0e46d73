// SPDX-License-Identifier: MIT
// Variables that clients keep on a server by name: one client creates them, others find them. They
// are independent of training. Adding is atomic. Thread-safe; only adding waits for others'
// arithmetic. Errors name the variable and the container.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/device/buffer.h"
#include "engine/ops/ops.h"
#include "engine/tensor/tensor.h"
#include "strategies/parameter_server/rpc/rpc.h"
#include "strategies/parameter_server/server/memory_budget.h"

namespace lockstep::strategies {

class NamedVariables {
 public:
  // Ways to store a value. kInit: the variable must not exist. kForce: no condition. kSet, kAdd: it
  // must exist with this shape and type.
  enum class How : std::uint8_t { kInit, kForce, kSet, kAdd };
  struct Value {
    engine::Shape shape = {};
    engine::DType dtype = engine::DType::kFloat32;
    std::vector<rpc::Slice> body = {};
    std::size_t bytes() const { return shape.elements() * size_of(dtype); }
  };

  struct Held {
    MemoryBudget::Share share;
    engine::Buffer memory;
  };
  struct Variable {
    engine::Shape shape = {};
    engine::DType dtype = engine::DType::kFloat32;
    std::shared_ptr<Held> held = {};  // constant after `put`
  };

  // Takes the container's name for messages.
  explicit NamedVariables(std::string container) : container_(std::move(container)) {}
  const std::string& container() const { return container_; }
  // Returns a variable with this value for `put` or `add`. Throws Error(kInvalid) if the body's
  // size or the name is invalid, and Error(kMemory).
  Variable copied(const std::string& name, const Value& value, const MemoryBudget& budget) const;
  // Stores the variable and returns the previous one. `how`: any but kAdd. Throws Error(kInvalid)
  // if the condition of `how` fails; nothing changes then. Does not wait for arithmetic.
  Variable put(const std::string& name, How how, Variable variable);
  // Adds the variable's elements to the stored ones; its memory receives the sum.
  void add(const std::string& name, const Variable& variable, const engine::Ops& ops);
  Value read(const std::string& name) const;  // throws Error(kInvalid) with the name
  bool holds(const std::string& name) const;
  std::size_t size() const;
  std::uint64_t bytes() const;
  std::uint64_t checksum(const engine::Ops& ops) const;

 private:
  Variable& at(const std::string& name, const Variable& like);  // requires the mutex

  const std::string container_;
  std::mutex adding_;  // locked before the mutex
  mutable std::mutex mutex_;
  std::uint64_t bytes_ = 0;
  std::map<std::string, Variable, std::less<>> variables_;
};

}  // namespace lockstep::strategies
