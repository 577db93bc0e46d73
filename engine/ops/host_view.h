// SPDX-License-Identifier: MIT
// A host-readable view of a tensor: the tensor itself if it lies in host memory, else a copy made
// at construction. The copy also waits for all kernels queued before it. Used on the replica's
// computing thread.
#pragma once
#include "engine/device/buffer.h"
#include "engine/ops/ops.h"

namespace lockstep::engine {

class HostView {
 public:
  // Makes the first `rows` rows readable; an empty tensor gives an empty view. A copy's shape has
  // `rows` rows.
  HostView(Ops& ops, Tensor tensor, std::size_t rows);
  HostView(Ops& ops, Tensor tensor) : HostView(ops, tensor, tensor.rows()) {}
  const Tensor& tensor() const { return tensor_; }

 private:
  Buffer copy_;
  Tensor tensor_;
};

}  // namespace lockstep::engine
