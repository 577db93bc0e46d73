// SPDX-License-Identifier: MIT
// An array of elements in chunks that readers can borrow while the array changes. Pulls and
// checkpoints therefore never copy it. A borrowed chunk is not written any more: the next write
// uses another chunk, which replaces it. The old chunk becomes free when its last reader releases
// it. Memory is that of the elements, plus the chunks that changed while they were borrowed.
//
// Threads: `lend` and `copy` may run concurrently. `reserve` and `write` need exclusive access (the
// owner's lock). Borrowed slices may be released on any thread at any time.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "engine/device/buffer.h"
#include "engine/tensor/tensor.h"
#include "strategies/parameter_server/rpc/rpc.h"
#include "strategies/parameter_server/server/memory_budget.h"

namespace lockstep::strategies {

class ChunkedArray {
 public:
  static constexpr std::size_t kChunk = std::size_t(1) << 20;  // elements

  // Creates `elements` zeros of `width` bytes; the caller holds a share of the budget for them.
  // `budget`: for replacement chunks; outlives the array; null: no limit. Throws Error(kIo) if
  // memory is short.
  ChunkedArray(std::size_t elements, std::size_t width, const MemoryBudget* budget = nullptr);
  static std::uint64_t memory(std::size_t elements, std::size_t width);  // bytes that it needs
  std::size_t elements() const { return elements_; }

  // Appends the current elements of the range, one slice per chunk.
  void lend(engine::Range range, std::vector<rpc::Slice>& to) const;
  void copy(engine::Range range, std::byte* to) const;

  // Prepares free chunks, so that writes to these ranges need no memory unless something is lent in
  // between. On failure nothing changes: throws Error(kIo), or Error(kMemory) if there would be
  // more replacements than chunks and the budget refuses them.
  void reserve(std::span<const engine::Range> ranges);
  // Calls write(part, old, now) for each chunk's part of the range. `old`: the current elements;
  // `now`: the memory for the new ones, either `old` itself or disjoint memory. It must be written
  // completely.
  template <class Write>
  void write(engine::Range range, Write write);
  // Returns writable memory that holds the range's current elements.
  std::byte* writable(engine::Range in_one_chunk);

 private:
  struct Chunk {
    explicit Chunk(std::size_t bytes) : memory(bytes) {}
    engine::Buffer memory;
    std::atomic<int> loans{0};
    MemoryBudget::Share share;
    // Acquire: orders the readers' accesses before the next write.
    bool lent() const { return loans.load(std::memory_order_acquire) > 0; }
  };
  std::byte* at(std::size_t element) const;
  void exchange(std::size_t chunk, engine::Range but);

  std::size_t elements_ = 0, width_ = 0;
  const MemoryBudget* budget_ = nullptr;
  std::vector<std::shared_ptr<Chunk>> chunks_;
  std::vector<std::shared_ptr<Chunk>> retired_;  // replaced; still read, or free for reuse
  std::size_t free_ = 0;                         // the last `free_` of `retired_` are free
};

template <class Write>
void ChunkedArray::write(engine::Range range, Write write) {
  for (std::size_t begin = range.begin; begin < range.end;) {
    const std::size_t chunk = begin / kChunk;
    const engine::Range part{begin, std::min(range.end, (chunk + 1) * kChunk)};
    const std::byte* old = at(begin);
    if (chunks_[chunk]->lent()) exchange(chunk, part);
    write(part, old, at(begin));
    begin = part.end;
  }
}

}  // namespace lockstep::strategies
