// SPDX-License-Identifier: MIT
// Memory of one GPU, and host memory pinned for it. Freed blocks are cached and reused, since the
// driver's allocation takes up to a millisecond and may wait for the GPU. They return to the driver
// if an allocation fails otherwise. The GPU memory is limited by a fraction and by a number of
// bytes. Thread-safe, but must not be used while a stream of the GPU is captured. Blocks are
// rounded up to 512 bytes, and from 1 MiB on to 2 MiB. Throws Error(kMemory) with the requested,
// used and allowed sizes.
#pragma once
#include <cstddef>
#include <map>
#include <mutex>
#include <string_view>

#include "engine/cuda/context.h"
#include "engine/cuda/stream.h"
#include "engine/device/buffer.h"

namespace lockstep::engine::cuda {

class Memory {
 public:
  static constexpr double kFraction = 0.95;  // of the free memory at construction

  // `most`: additional limit in bytes; 0: none.
  explicit Memory(const Context& context, double fraction = kFraction, std::size_t most = 0);
  ~Memory();  // requires that all buffers are freed
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Returns zeroed GPU memory, aligned to 256 bytes. If it reuses a block, it first waits for all
  // work queued on the GPU, which may still use the block. The buffer must not outlive this object.
  // Errors name `what`.
  Buffer allocate(std::size_t bytes, std::string_view what = "");
  // Returns zeroed, pinned host memory, which the GPU copies without the host.
  Buffer pinned(std::size_t bytes);

  std::size_t taken() const;       // bytes in buffers
  std::size_t held() const;        // bytes cached for reuse
  std::size_t most_taken() const;  // most bytes taken and held at once
  std::size_t limit() const { return gpu_.limit; }

 private:
  struct Pool {
    bool host = false;
    std::size_t limit = 0;                          // of taken and held together
    std::multimap<std::size_t, std::byte*> kept{};  // cached blocks by size
    std::size_t taken = 0, held = 0, most = 0;
  };
  struct Block {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  // The caller of these functions holds the mutex.
  Buffer take(Pool& pool, std::size_t bytes, std::string_view what);
  Block kept_block(Pool& pool, std::size_t bytes);  // empty if none fits
  Block new_block(Pool& pool, std::size_t bytes, std::string_view what);
  void clear(const Pool& pool, std::byte* data, std::size_t bytes);
  void wait_for_gpu() const;
  void release_kept(Pool& pool) noexcept;

  void give_back(Pool& pool, Block block) noexcept;

  const Context* context_;
  CudaStream stream_;  // for zeroing
  mutable std::mutex mutex_;
  Pool gpu_, host_;
};

}  // namespace lockstep::engine::cuda
