// SPDX-License-Identifier: MIT
#include "engine/cuda/memory.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "engine/base/error.h"

namespace lockstep::engine::cuda {
namespace {

constexpr std::size_t kMebibyte = std::size_t(1) << 20;
constexpr std::size_t kPromised = 256;  // alignment that the driver guarantees
constexpr std::size_t kSmallUnit = 512;

// Rounds a size. The driver allocates pages of 2 MiB; small blocks share one, large ones waste
// none.
std::size_t block_bytes(std::size_t bytes) {
  const std::size_t unit = bytes >= kMebibyte ? 2 * kMebibyte : kSmallUnit;
  return (bytes + unit - 1) / unit * unit;
}

std::string size_text(std::size_t bytes) {
  if (bytes < kMebibyte) return fmt::format("{} bytes", bytes);
  return fmt::format("{:.1f} MiB", double(bytes) / double(kMebibyte));
}

}  // namespace

Memory::Memory(const Context& context, double fraction, std::size_t most)
    : context_(&context),
      stream_(context),
      gpu_{.host = false,
           .limit = std::min(std::size_t(double(context.free_memory()) * fraction),
                             most > 0 ? most : std::numeric_limits<std::size_t>::max())},
      host_{.host = true, .limit = std::numeric_limits<std::size_t>::max()} {}

Memory::~Memory() {
  const std::lock_guard lock(mutex_);
  invariant(gpu_.taken == 0 && host_.taken == 0, "memory of a GPU is gone before its buffers");
  try {
    wait_for_gpu();
  } catch (const Error&) {
    // Failed work no longer uses the memory.
  }
  release_kept(gpu_);
  release_kept(host_);
}

Buffer Memory::allocate(std::size_t bytes, std::string_view what) {
  const std::lock_guard lock(mutex_);
  return take(gpu_, bytes, what);
}

Buffer Memory::pinned(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  return take(host_, bytes, "");
}

std::size_t Memory::taken() const {
  const std::lock_guard lock(mutex_);
  return gpu_.taken;
}

std::size_t Memory::held() const {
  const std::lock_guard lock(mutex_);
  return gpu_.held;
}

std::size_t Memory::most_taken() const {
  const std::lock_guard lock(mutex_);
  return gpu_.most;
}

Buffer Memory::take(Pool& pool, std::size_t bytes, std::string_view what) {
  if (bytes == 0) return {};
  Block block = kept_block(pool, block_bytes(bytes));
  if (block.data == nullptr) block = new_block(pool, block_bytes(bytes), what);
  pool.taken += block.bytes;
  pool.most = std::max(pool.most, pool.taken + pool.held);
  // The buffer is made last, since its destruction locks the mutex.
  try {
    clear(pool, block.data, bytes);
  } catch (...) {
    pool.taken -= block.bytes;
    pool.kept.emplace(block.bytes, block.data);
    pool.held += block.bytes;
    throw;
  }
  return Buffer(block.data, bytes, [this, &pool, block] { give_back(pool, block); });
}

// Takes the smallest kept block that is large enough, unless more than a fifth of it would be
// unused.
Memory::Block Memory::kept_block(Pool& pool, std::size_t bytes) {
  const auto found = pool.kept.lower_bound(bytes);
  if (found == pool.kept.end() || found->first > bytes + bytes / 4) return {};
  wait_for_gpu();
  const Block block{found->second, found->first};
  pool.kept.erase(found);
  pool.held -= block.bytes;
  return block;
}

Memory::Block Memory::new_block(Pool& pool, std::size_t bytes, std::string_view what) {
  context_->use();
  const Driver& driver = context_->driver();
  const auto ask = [&](std::byte*& data) {
    if (pool.host) {
      void* address = nullptr;
      const CUresult result = driver.mem_host_alloc(&address, bytes, CU_MEMHOSTALLOC_PORTABLE);
      data = static_cast<std::byte*>(address);
      return result;
    }
    CUdeviceptr address = 0;
    const CUresult result = driver.mem_alloc(&address, bytes);
    data = reinterpret_cast<std::byte*>(std::uintptr_t(address));
    return result;
  };

  Block block{nullptr, bytes};
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (bytes <= pool.limit - pool.taken) {
    if (bytes > pool.limit - pool.taken - pool.held) {
      wait_for_gpu();
      release_kept(pool);
    }
    result = ask(block.data);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && pool.held > 0) {
      wait_for_gpu();
      release_kept(pool);
      result = ask(block.data);
    }
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    const std::string purpose = what.empty() ? std::string() : fmt::format(" for {}", what);
    if (pool.host) {
      fail(Code::kMemory, "cuda:{}: the host cannot pin {}; {} are pinned", context_->index(),
           size_text(bytes), size_text(pool.taken));
    }
    fail(Code::kMemory,
         "cuda:{}: no memory{}: {} asked for, {} taken, at most {} to be taken, {} free",
         context_->index(), purpose, size_text(bytes), size_text(pool.taken), size_text(pool.limit),
         size_text(context_->free_memory()));
  }
  context_->check(result, pool.host ? "cuMemHostAlloc" : "cuMemAlloc");
  invariant(address_of(block.data) % kPromised == 0, "the driver's memory is aligned");
  return block;
}

// Clears with a stream of this object. The driver's synchronous call would also wait for the
// streams of others, and our streams would not wait for it.
void Memory::clear(const Pool& pool, std::byte* data, std::size_t bytes) {
  if (pool.host) {
    std::memset(data, 0, bytes);
    return;
  }
  stream_.fill(data, 0, bytes);
  stream_.synchronize();
}

void Memory::wait_for_gpu() const {
  wait_for_all(*context_, CudaStream::kDeadline);
}

void Memory::release_kept(Pool& pool) noexcept {
  for (const auto& [bytes, data] : pool.kept) {
    if (context_->stuck()) break;
    if (pool.host) {
      context_->driver().mem_free_host(data);
    } else {
      context_->driver().mem_free(address_of(data));
    }
  }
  pool.kept.clear();
  pool.held = 0;
}

void Memory::give_back(Pool& pool, Block block) noexcept {
  const std::lock_guard lock(mutex_);
  pool.kept.emplace(block.bytes, block.data);
  pool.taken -= block.bytes;
  pool.held += block.bytes;
}

}  // namespace lockstep::engine::cuda
