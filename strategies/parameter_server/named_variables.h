// SPDX-License-Identifier: MIT
// Variables that clients keep on a server by name: made by one client, there for the next. They
// have nothing to do with training; adding is one action, whoever else adds. Any thread; a call
// holds the lock while it copies.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/device/buffer.h"
#include "engine/ops/ops.h"
#include "engine/tensor/tensor.h"
#include "strategies/parameter_server/rpc.h"

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

  // `container` is for messages.
  explicit NamedVariables(std::string container) : container_(std::move(container)) {}
  // Throws Error(kInvalid) naming variable and container: there already, not there, another shape
  // or type, a body of another size. Nothing is changed then.
  void assign(const std::string& name, How how, const Value& value, const engine::Ops& ops);
  Value read(const std::string& name) const;  // a copy; throws Error(kInvalid) naming it
  bool holds(const std::string& name) const;
  std::size_t size() const;
  std::uint64_t bytes() const;
  std::uint64_t checksum(const engine::Ops& ops) const;

 private:
  struct Variable {
    engine::Shape shape;
    engine::DType dtype;
    engine::Buffer memory;
  };
  const std::string container_;
  mutable std::mutex mutex_;
  std::map<std::string, Variable, std::less<>> variables_;
};

}  // namespace lockstep::strategies
