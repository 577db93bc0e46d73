// SPDX-License-Identifier: MIT
// Elements in memory that can be lent out while it goes on changing: what a pull or a checkpoint
// reads is never copied for it. The elements lie in chunks. A chunk that somebody has on loan is
// not written any more: the next write goes to another one, which takes its place, and the old one
// becomes free when its last reader is done. So memory is that of the elements, and of the chunks
// that were changed while they were on loan.
//
// Threads: `lend` and `copy` any number at once; `reserve` and `write` one, and nobody else then
// (the owner's lock). What was lent may be given back on any thread, at any time.
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

  // Zeros, `width` bytes each, which the caller has a share for. `budget`: of the chunks that take
  // others' places; outlives the array; null: there is none. Throws Error(kIo) where there is no
  // memory.
  ChunkedArray(std::size_t elements, std::size_t width, const MemoryBudget* budget = nullptr);
  static std::uint64_t memory(std::size_t elements, std::size_t width);  // that it takes
  std::size_t elements() const { return elements_; }

  // Appends the elements of the range as they are now, a slice for each chunk.
  void lend(engine::Range range, std::vector<rpc::Slice>& to) const;
  void copy(engine::Range range, std::byte* to) const;

  // Makes sure that writes to these ranges, as long as nothing is lent in between, take no memory.
  // Throws Error(kIo) or, for more of them than there are chunks, Error(kMemory); nothing is
  // changed then.
  void reserve(std::span<const engine::Range> ranges);
  // Calls write(part, old, now) for each chunk's part of the range: `old` is where its elements
  // are, `now` where all of them are to be written: the same memory, or memory apart from it.
  template <class Write>
  void write(engine::Range range, Write write);
  // The same, with the elements there.
  std::byte* writable(engine::Range in_one_chunk);

 private:
  struct Chunk {
    explicit Chunk(std::size_t bytes) : memory(bytes) {}
    engine::Buffer memory;
    std::atomic<int> loans{0};
    MemoryBudget::Share share;
    // Acquire: what readers did with it comes before what is written then.
    bool lent() const { return loans.load(std::memory_order_acquire) > 0; }
  };
  std::byte* at(std::size_t element) const;
  void exchange(std::size_t chunk, engine::Range but);

  std::size_t elements_ = 0, width_ = 0;
  const MemoryBudget* budget_ = nullptr;
  std::vector<std::shared_ptr<Chunk>> chunks_;
  std::vector<std::shared_ptr<Chunk>> retired_;  // replaced; still read, or free to be used again
  std::size_t free_ = 0;                         // of those, the last so many are free
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
