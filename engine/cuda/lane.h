// SPDX-License-Identifier: MIT
// A stream of a replica's kernels, with the resources that its kernels share one after the other.
// These are libraries with their workspaces, scratch memory of a call, and tickets. Lanes share no
// resources, so their work may overlap. Use it on the replica's computing thread, and destroy it
// only after its queued work is done. Throws Error(kMemory), Error(kDevice).
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

// Holds the libraries of one lane, which it uses besides lockstep's own kernels.
struct LaneLibraries {
  std::unique_ptr<Products> products;
  std::unique_ptr<Convolutions> convolutions;
};

class Lane {
 public:
  Lane(const GpuParts& gpu, LaneLibraries libraries, bool urgent);

  // Returns GPU memory that is valid until the next call.
  std::byte* scratch(std::size_t bytes);
  // Returns scratch memory and tickets for `count` sums per channel over `lines` lines. The next
  // call reuses them.
  Partials partials(std::size_t lines, std::size_t channels, std::size_t groups, std::size_t count,
                    unsigned tile);
  // Frees outgrown buffers. All queued work must be done, and nothing may be repeated.
  void forget_outgrown() { outgrown_.clear(); }

  CudaStream stream;
  const std::unique_ptr<Products> products;
  const std::unique_ptr<Convolutions> convolutions;

 private:
  Memory* memory_;
  Buffer scratch_;
  Buffer tickets_;                // zero between kernels (engine/cuda/kernels/lines.h)
  std::vector<Buffer> outgrown_;  // queued kernels may still use them
};

}  // namespace lockstep::engine::cuda
