// SPDX-License-Identifier: MIT
// Variables that clients keep on a server by name: made by one client, there for the next. They
// have nothing to do with training; adding is one action, whoever else adds. Any thread; only who
// adds to variables waits for others' arithmetic. Errors name variable and container.
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
  // kInit: an error where it is there. kForce: whatever is there. kSet, kAdd: it is there, with
  // this shape and type.
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
    std::shared_ptr<Held> held = {};  // not written any more once it is put
  };

  // `container` is for messages.
  explicit NamedVariables(std::string container) : container_(std::move(container)) {}
  const std::string& container() const { return container_; }
  // A variable with this value, to be put or added. Throws Error(kInvalid) for a body of another
  // size and for a name that cannot be, Error(kMemory).
  Variable copied(const std::string& name, const Value& value, const MemoryBudget& budget) const;
  // How: all but kAdd. What was there. Throws Error(kInvalid): there already, not there, another
  // shape or type. Nothing is changed then. Does not wait for arithmetic.
  Variable put(const std::string& name, How how, Variable variable);
  // As kAdd; the variable's memory is taken for the sum.
  void add(const std::string& name, const Variable& variable, const engine::Ops& ops);
  Value read(const std::string& name) const;  // throws Error(kInvalid) naming it
  bool holds(const std::string& name) const;
  std::size_t size() const;
  std::uint64_t bytes() const;
  std::uint64_t checksum(const engine::Ops& ops) const;

 private:
  Variable& at(const std::string& name, const Variable& like);  // the mutex is held

  const std::string container_;
  std::mutex adding_;  // before the mutex
  mutable std::mutex mutex_;
  std::uint64_t bytes_ = 0;
  std::map<std::string, Variable, std::less<>> variables_;
};

}  // namespace lockstep::strategies
