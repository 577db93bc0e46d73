// SPDX-License-Identifier: MIT
// The context of a layer or a loss that touches its operands itself, if these are in a device's
// memory. It has host kernels, the step's state, and copies of operands. Sums over replicas still
// use memory that both reach. For one call on the replica's computing thread; the outer context
// must outlive it. Construction and every `fetch` wait for all kernels so far.
#pragma once
#include <cstddef>
#include <vector>

#include "engine/device/buffer.h"
#include "engine/nn/layer.h"

namespace lockstep::engine {

class HostContext final : public Context {
 public:
  // `host` has the kernels for host memory, of the same element type.
  HostContext(Context& outer, Ops& host, std::size_t rows);
  std::byte* exchange(int point) override { return outer_.exchange(point); }
  void reduce(int point) override;

  // Returns a tensor like `like` in host memory, in `buffer`; without data if `like` has none.
  static Tensor room(const Tensor& like, Buffer& buffer);
  Tensor fetch(const Tensor& from, Buffer& buffer);  // returns a copy
  void store(const Tensor& from, const Tensor& to);  // copies back; nothing without data

 private:
  Context& outer_;
  StepState words_;
  std::vector<std::int64_t> ids_;
};

}  // namespace lockstep::engine
