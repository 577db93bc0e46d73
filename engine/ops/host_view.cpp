// SPDX-License-Identifier: MIT
#include "engine/ops/host_view.h"

namespace lockstep::engine {

HostView::HostView(Ops& ops, Tensor tensor, std::size_t rows) : tensor_(tensor) {
  if (ops.in_host_memory() || !tensor) return;
  tensor_ = rows_of(tensor, 0, rows);
  copy_ = Buffer(tensor_.bytes());
  ops.read(tensor.data, copy_.data(), copy_.bytes());
  tensor_.data = copy_.data();
}

}  // namespace lockstep::engine
