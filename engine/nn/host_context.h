// SPDX-License-Identifier: MIT
// What a layer or a loss gets that touches its operands itself, where these lie in a device's
// memory: kernels and words of the host, and copies of operands. Sums over replicas go on in
// memory that both reach. One call on the replica's computing thread; the outer context outlives
// it. Making one waits for all kernels so far; so does every `fetch`.
#pragma once
#include <cstddef>
#include <vector>

#include "engine/device/buffer.h"
#include "engine/nn/layer.h"

namespace lockstep::engine {

class HostContext final : public Context {
 public:
  // `host`: of the host's memory, of the same element type.
  HostContext(Context& outer, Ops& host, std::size_t rows);
  std::byte* exchange(int point) override { return outer_.exchange(point); }
  void reduce(int point) override;

  // Of this shape and type in the host's memory, in `buffer`; of no data none.
  static Tensor room(const Tensor& like, Buffer& buffer);
  Tensor fetch(const Tensor& from, Buffer& buffer);  // a copy
  void store(const Tensor& from, const Tensor& to);  // back; nothing of no data

 private:
  Context& outer_;
  StepState words_;
  std::vector<std::int64_t> ids_;
};

}  // namespace lockstep::engine
