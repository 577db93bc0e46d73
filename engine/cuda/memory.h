// SPDX-License-Identifier: MIT
// Memory of one GPU, and of the host pinned for it. What is given back is kept and given again
// (asking the driver costs up to a millisecond and may wait for the GPU), and handed to the driver
// where it would not do otherwise. Of the GPU's memory at most a fraction is taken, and at most so
// many bytes as are named. Any thread, but
// not while a stream of the GPU is recorded as a graph. Blocks are rounded to 512 bytes, from 1 MiB
// on to 2 MiB. Errors: Error(kMemory) that says how much was asked for, is taken, and may be taken.
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
  static constexpr double kFraction = 0.95;  // of what is free when this is made

  // `most`: bytes, whatever the fraction allows; 0: what that is.
  explicit Memory(const Context& context, double fraction = kFraction, std::size_t most = 0);
  ~Memory();  // everything must have been given back
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Zeroed, on the GPU, aligned to 256 bytes. Waits for all work queued on the GPU where the memory
  // is used again, since that work may still use it. The buffer must be gone before this is. `what`
  // is named where there is too little.
  Buffer allocate(std::size_t bytes, std::string_view what = "");
  // Zeroed, of the host, pinned: the GPU copies from and to it without the host.
  Buffer pinned(std::size_t bytes);

  std::size_t taken() const;       // bytes in buffers now
  std::size_t held() const;        // and kept to be given again
  std::size_t most_taken() const;  // that were ever taken or held at once
  std::size_t limit() const { return gpu_.limit; }

 private:
  struct Pool {
    bool host = false;
    std::size_t limit = 0;                          // of taken and held together
    std::multimap<std::size_t, std::byte*> kept{};  // by their size
    std::size_t taken = 0, held = 0, most = 0;
  };
  struct Block {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  // These are called with the mutex held.
  Buffer take(Pool& pool, std::size_t bytes, std::string_view what);
  Block kept_block(Pool& pool, std::size_t bytes);  // of nothing where none fits
  Block new_block(Pool& pool, std::size_t bytes, std::string_view what);
  void clear(const Pool& pool, std::byte* data, std::size_t bytes);
  void wait_for_gpu() const;
  void release_kept(Pool& pool) noexcept;

  void give_back(Pool& pool, Block block) noexcept;

  const Context* context_;
  CudaStream stream_;  // of the zeros
  mutable std::mutex mutex_;
  Pool gpu_, host_;
};

}  // namespace lockstep::engine::cuda
