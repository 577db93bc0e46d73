// SPDX-License-Identifier: MIT
// The context of a single replica: for tests, benchmarks, gradient checks, and programs that only
// predict. A reduction over one replica changes nothing. Owns the exchange space of its graph. Used
// by the thread that runs the graph.
#pragma once
#include <cstddef>
#include <vector>

#include "engine/device/buffer.h"
#include "engine/nn/graph.h"

namespace lockstep::engine {

class LocalContext final : public Context {
 public:
  // Both must outlive this.
  LocalContext(Ops& ops, const Graph& graph);
  std::byte* exchange(int point) override;
  void reduce(int point) override;

 private:
  std::vector<Buffer> space_;  // one per reduction
};

}  // namespace lockstep::engine
