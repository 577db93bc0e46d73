// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/server/chunked_array.h"

#include <set>

#include "engine/base/error.h"

namespace lockstep::strategies {

std::uint64_t ChunkedArray::memory(std::size_t elements, std::size_t width) {
  constexpr std::uint64_t kOfChunk = 128;  // bytes besides its elements
  const std::uint64_t rest = elements % kChunk;
  return elements / kChunk * (engine::Buffer::taken(kChunk * width) + kOfChunk) +
         (rest > 0 ? engine::Buffer::taken(rest * width) + kOfChunk : 0);
}

ChunkedArray::ChunkedArray(std::size_t elements, std::size_t width, const MemoryBudget* budget)
    : elements_(elements), width_(width), budget_(budget) {
  for (std::size_t begin = 0; begin < elements; begin += kChunk) {
    chunks_.push_back(std::make_shared<Chunk>(std::min(kChunk, elements - begin) * width));
  }
}

std::byte* ChunkedArray::at(std::size_t element) const {
  return chunks_[element / kChunk]->memory.data() + element % kChunk * width_;
}

void ChunkedArray::lend(engine::Range range, std::vector<rpc::Slice>& to) const {
  for (std::size_t begin = range.begin; begin < range.end;) {
    const std::shared_ptr<Chunk>& chunk = chunks_[begin / kChunk];
    const std::size_t end = std::min(range.end, (begin / kChunk + 1) * kChunk);
    chunk->loans.fetch_add(1, std::memory_order_relaxed);
    const auto give_back = [chunk](const void*) {
      chunk->loans.fetch_sub(1, std::memory_order_release);
    };
    to.push_back({at(begin), (end - begin) * width_,
                  std::shared_ptr<const void>(static_cast<const void*>(at(begin)), give_back)});
    begin = end;
  }
}

void ChunkedArray::copy(engine::Range range, std::byte* to) const {
  for (std::size_t begin = range.begin; begin < range.end;) {
    const std::size_t end = std::min(range.end, (begin / kChunk + 1) * kChunk);
    std::memcpy(to + (begin - range.begin) * width_, at(begin), (end - begin) * width_);
    begin = end;
  }
}

// Keeps free chunks for reuse, at most as many as there are chunks. Keeps only chunks of full size,
// since any of them may replace any chunk and the array's last chunk may be shorter.
void ChunkedArray::reserve(std::span<const engine::Range> ranges) {
  std::set<std::size_t> lent;
  for (const engine::Range range : ranges) {
    if (range.empty()) continue;
    for (std::size_t chunk = range.begin / kChunk; chunk <= (range.end - 1) / kChunk; ++chunk)
      if (chunks_[chunk]->lent()) lent.insert(chunk);
  }
  if (lent.empty()) return;
  std::erase_if(retired_, [&](const std::shared_ptr<Chunk>& chunk) {
    return !chunk->lent() && chunk->memory.bytes() < chunks_[0]->memory.bytes();
  });
  const auto first_free =
      std::stable_partition(retired_.begin(), retired_.end(),
                            [](const std::shared_ptr<Chunk>& chunk) { return chunk->lent(); });
  free_ = std::size_t(retired_.end() - first_free);
  while (free_ > chunks_.size()) {
    retired_.pop_back();
    --free_;
  }
  // Slow readers must not multiply the array's memory.
  for (; free_ < lent.size(); ++free_) {
    const std::size_t bytes = chunks_[0]->memory.bytes();
    MemoryBudget::Share share;
    if (budget_ != nullptr) {
      share = retired_.size() < chunks_.size()
                  ? budget_->add(bytes)
                  : budget_->take(bytes, "an array that is read and written at once");
    }
    retired_.push_back(std::make_shared<Chunk>(bytes));
    retired_.back()->share = std::move(share);
  }
  retired_.reserve(retired_.size() + 1);
}

// Replaces the chunk by another one and copies all elements except those of `but`, which will be
// written.
void ChunkedArray::exchange(std::size_t chunk, engine::Range but) {
  if (free_ == 0) {
    const engine::Range whole[] = {{chunk * kChunk, chunk * kChunk + 1}};
    reserve(whole);
    if (free_ == 0) return;  // released in the meantime
  }
  std::shared_ptr<Chunk> fresh = std::move(retired_.back());
  retired_.pop_back();
  --free_;
  const std::size_t first = chunk * kChunk, end = std::min(elements_, first + kChunk);
  const std::byte* from = chunks_[chunk]->memory.data();
  std::byte* to = fresh->memory.data();
  if (but.begin > first) std::memcpy(to, from, (but.begin - first) * width_);
  if (but.end < end) {
    const std::size_t offset = (but.end - first) * width_;
    std::memcpy(to + offset, from + offset, (end - but.end) * width_);
  }
  std::swap(chunks_[chunk], fresh);
  retired_.insert(retired_.begin(), std::move(fresh));
}

std::byte* ChunkedArray::writable(engine::Range in_one_chunk) {
  const std::size_t chunk = in_one_chunk.begin / kChunk;
  engine::invariant(in_one_chunk.empty() || (in_one_chunk.end - 1) / kChunk == chunk,
                    "elements of two chunks are not in one place");
  if (chunks_[chunk]->lent()) exchange(chunk, {in_one_chunk.begin, in_one_chunk.begin});
  return at(in_one_chunk.begin);
}

}  // namespace lockstep::strategies
