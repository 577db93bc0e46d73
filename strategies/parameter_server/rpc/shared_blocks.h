// SPDX-License-Identifier: MIT
// Memory of this process that another process of the same host also maps: blocks for the bodies of
// calls and answers (shared_connection.h). A block belongs to one call and to the holders of its
// result; afterwards a call of the same size may reuse it. A block of a failed call is spoilt and
// never reused, since the other side may still write into it.
//
// Thread-safe. A new block costs the time to zero its pages (MappedMemory); a reused one costs
// nothing.
#pragma once
#include <atomic>
#include <cstddef>
#include <memory>

#include "collectives/memory/mapped_memory.h"

namespace lockstep::strategies::rpc {

class SharedBlocks {
 public:
  class Block {
   public:
    explicit Block(std::size_t bytes) : memory_("bodies of calls", bytes) {}
    const collectives::MappedMemory& memory() const { return memory_; }
    void spoil() { spoilt_ = true; }
    bool spoilt() const { return spoilt_; }

   private:
    collectives::MappedMemory memory_;
    std::atomic<bool> spoilt_ = false;
  };

  explicit SharedBlocks(std::size_t most);  // maximum bytes of all blocks
  // Returns a block of at least `bytes` bytes. Its last holder releases it and may outlive this
  // object. Returns null if blocks in use would exceed `most`. Throws Error(kIo) if the system is
  // out of memory.
  std::shared_ptr<Block> take(std::size_t bytes);

 private:
  struct Pool;
  std::shared_ptr<Pool> pool_;
};

}  // namespace lockstep::strategies::rpc
