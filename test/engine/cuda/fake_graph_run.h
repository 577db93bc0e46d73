// SPDX-License-Identifier: MIT
// Computes the operations of a cuDNN graph from what their descriptors say: extents, strides,
// numbers of tensors, paddings and steps. Float32 alone; of a graph of other types nothing is
// computed. For the fake cuDNN.
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

// Name of an attribute -> its values, one behind the other.
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
  // `name`: the attribute of the operation that says which tensor.
  Operand operand(const FakeAttributes& operation, int name);
  void pointwise(const FakeAttributes& operation);
  // The names of the attributes: of the operands of the sum x * w = y, and which of them is
  // written.
  struct Names {
    int x, w, y, convolution, alpha, beta;
    char written;
  };
  void convolution(const FakeAttributes& operation, const Names& names);

  std::map<std::int64_t, void*> addresses_;
  std::map<std::int64_t, std::vector<float>> between_;  // tensors that lie in no memory
  bool float32_ = true;
};

}  // namespace lockstep::engine::cuda
