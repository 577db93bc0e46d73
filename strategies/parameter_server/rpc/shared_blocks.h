// SPDX-License-Identifier: MIT
// Memory of this process that another process of the same host maps, too: blocks for the bodies of
// calls and of their answers (shared_connection.h). A block belongs to one call and to whoever
// holds what came of it; then it is there for the next call of that size. A block of a call that
// failed is spoilt: the other side may write into it yet, so nobody is given it again.
//
// Any thread. A new block costs the time to zero its pages (MappedMemory), one that is free
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

  explicit SharedBlocks(std::size_t most);  // bytes of all blocks
  // Of at least so many bytes, until its last holder lets go, who may outlive the blocks. Null
  // where that would be more than `most` with those that are held. Throws Error(kIo) where the
  // system has no memory.
  std::shared_ptr<Block> take(std::size_t bytes);

 private:
  struct Pool;
  std::shared_ptr<Pool> pool_;
};

}  // namespace lockstep::strategies::rpc
