// SPDX-License-Identifier: MIT
// Computes the operations of a cuDNN graph for the fake cuDNN, from the extents, strides, tensor
// numbers, paddings, and steps of their descriptors. Graphs of types other than float32 are not
// computed.
#pragma once
#include <cudnn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "engine/base/error.h"

namespace lockstep::engine::cuda {

// Consecutive values by attribute name.
using FakeAttributes = std::map<int, std::vector<std::byte>>;

template <class Value>
std::vector<Value> attributes(const FakeAttributes& all, int name) {
  const auto found = all.find(name);
  if (found == all.end()) return {};
  std::vector<Value> values(found->second.size() / sizeof(Value));
  if (!values.empty())
    std::memcpy(values.data(), found->second.data(), values.size() * sizeof(Value));
  return values;
}

template <class Value>
Value attribute(const FakeAttributes& all, int name) {
  const auto found = all.find(name);
  invariant(found != all.end() && found->second.size() == sizeof(Value),
            "an attribute is there, and has one value");
  Value value{};
  std::memcpy(&value, found->second.data(), sizeof value);
  return value;
}

class FakeGraphRun {
 public:
  explicit FakeGraphRun(const FakeAttributes& pack);
  void operation(int type, const FakeAttributes& operation);

 private:
  struct Operand {
    float* data = nullptr;
    std::vector<std::int64_t> extents, strides;
    float& at(std::array<std::int64_t, 4> place) const;
  };
  // Returns the tensor that the attribute `name` of the operation refers to.
  Operand operand(const FakeAttributes& operation, int name);
  void pointwise(const FakeAttributes& operation);
  // Holds the names of the attributes: the operands of the sum x * w = y, and which of them is
  // written.
  struct Names {
    int x, w, y, convolution, alpha, beta;
    char written;
  };
  void convolution(const FakeAttributes& operation, const Names& names);

  std::map<std::int64_t, void*> addresses_;
  std::map<std::int64_t, std::vector<float>> between_;  // virtual tensors
  bool float32_ = true;
};

}  // namespace lockstep::engine::cuda
