// SPDX-License-Identifier: MIT
// A tensor as the host reads it: itself where it lies in the host's memory, else a copy of now. The
// replica's computing thread. Costs nothing, or the copy and a wait for all kernels before it.
#pragma once
#include "engine/device/buffer.h"
#include "engine/ops/ops.h"

namespace lockstep::engine {

class HostView {
 public:
  // The first `rows` rows; of no data none. Of a copy the shape has so many rows.
  HostView(Ops& ops, Tensor tensor, std::size_t rows);
  HostView(Ops& ops, Tensor tensor) : HostView(ops, tensor, tensor.rows()) {}
  const Tensor& tensor() const { return tensor_; }

 private:
  Buffer copy_;
  Tensor tensor_;
};

}  // namespace lockstep::engine
