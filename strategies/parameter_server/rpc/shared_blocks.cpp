// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/rpc/shared_blocks.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <mutex>

namespace lockstep::strategies::rpc {

namespace {

constexpr std::size_t kLeast = std::size_t(64) << 10;

// Rounds up, so that calls of similar size share blocks: to multiples of 64 KiB, for large blocks
// by at most an eighth.
std::size_t rounded(std::size_t bytes) {
  const std::size_t step = std::max(kLeast, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

}  // namespace

struct SharedBlocks::Pool {
  explicit Pool(std::size_t limit) : most(limit) {}
  const std::size_t most;
  std::mutex mutex = {};
  std::size_t bytes = 0;                                         // bytes of all blocks
  std::multimap<std::size_t, std::unique_ptr<Block>> free = {};  // by size in bytes

  void give_back(Block* block) {
    std::unique_ptr<Block> owned(block);
    const std::size_t size = block->memory().bytes();
    const std::scoped_lock lock(mutex);
    if (block->spoilt()) {
      bytes -= size;
    } else {
      free.emplace(size, std::move(owned));
    }
  }
};

SharedBlocks::SharedBlocks(std::size_t most) : pool_(std::make_shared<Pool>(most)) {}

std::shared_ptr<SharedBlocks::Block> SharedBlocks::take(std::size_t bytes) {
  const std::size_t size = rounded(bytes);
  std::unique_ptr<Block> block;
  {
    const std::scoped_lock lock(pool_->mutex);
    const auto found = pool_->free.lower_bound(size);
    if (found != pool_->free.end()) {
      block = std::move(found->second);
      pool_->free.erase(found);
    } else {
      // Frees blocks that are too small, to make room.
      while (pool_->bytes + size > pool_->most && !pool_->free.empty()) {
        const auto largest = std::prev(pool_->free.end());
        pool_->bytes -= largest->first;
        pool_->free.erase(largest);
      }
      if (pool_->bytes + size > pool_->most) return nullptr;
      pool_->bytes += size;
    }
  }
  if (!block) {
    try {
      block = std::make_unique<Block>(size);
    } catch (...) {
      const std::scoped_lock lock(pool_->mutex);
      pool_->bytes -= size;
      throw;
    }
  }
  return {block.release(), [pool = pool_](Block* one) { pool->give_back(one); }};
}

}  // namespace lockstep::strategies::rpc
