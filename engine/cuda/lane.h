// SPDX-License-Identifier: MIT
// A stream of a replica's kernels, and what kernels that run in turn share: the libraries with
// their workspaces, memory for the numbers between two kernels of one call, tickets. Lanes share
// none of that, so what is queued in two of them may run at once. Used by the replica's computing
// thread; goes when all that was queued in it is done. Errors: Error(kMemory), Error(kDevice).
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "engine/cuda/convolutions.h"
#include "engine/cuda/gpu.h"
#include "engine/cuda/kernels/lines.h"
#include "engine/cuda/products.h"
#include "engine/cuda/stream.h"

namespace lockstep::engine::cuda {

// The libraries of one lane, which compute there beside our own kernels.
struct LaneLibraries {
  std::unique_ptr<Products> products;
  std::unique_ptr<Convolutions> convolutions;
};

class Lane {
 public:
  Lane(const GpuParts& gpu, LaneLibraries libraries, bool urgent);

  // Memory of the GPU, until the next call.
  std::byte* scratch(std::size_t bytes);
  // Scratch memory and tickets for `count` sums per channel over so many lines, which the next call
  // reuses.
  Partials partials(std::size_t lines, std::size_t channels, std::size_t groups, std::size_t count,
                    unsigned tile);
  // All that was queued here is done, and nothing will be repeated.
  void forget_outgrown() { outgrown_.clear(); }

  CudaStream stream;
  const std::unique_ptr<Products> products;
  const std::unique_ptr<Convolutions> convolutions;

 private:
  Memory* memory_;
  Buffer scratch_;
  Buffer tickets_;                // zero but while a kernel runs (engine/cuda/kernels/lines.h)
  std::vector<Buffer> outgrown_;  // that queued kernels may still use
};

}  // namespace lockstep::engine::cuda
