// SPDX-License-Identifier: MIT
// The kernels of sums.h.
#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/cuda/kernels/elements.cuh"
#include "engine/cuda/kernels/sums.h"
#include "engine/ops/definitions.h"

namespace lockstep::engine::cuda {

// The numbers below a node of the tree of balanced_sum. At each depth the numbers are split into
// two halves, and the bits of `node` select one, starting with the highest.
struct TreeRange {
  std::size_t first, count;
};
__device__ inline TreeRange tree_range(std::size_t count, std::size_t node, unsigned depth) {
  TreeRange range{0, count};
  while (depth-- > 0) {
    const std::size_t half = (range.count + 1) / 2;
    range = (node >> depth & 1) == 0 ? TreeRange{range.first, half}
                                     : TreeRange{range.first + half, range.count - half};
  }
  return range;
}

// Holds a part of the sum. Nothing is added for a part without numbers, so that -0 stays -0.
struct PartOfSum {
  double sum;
  bool empty;
};
__device__ inline PartOfSum sum_of_parts(PartOfSum first, PartOfSum second) {
  return second.empty ? first : PartOfSum{first.sum + second.sum, false};
}

// Each thread adds the subtree of one of the kThreads nodes at its depth. It visits the leaves in
// order, and keeps one finished part per level, like the digits of a binary counter. Threads then
// add the sums of two subtrees, level by level.
template <class T>
__device__ void run(const BatchSum& a) {
  constexpr unsigned kMostDepth = 40;
  const std::size_t count = std::size_t(a.state->examples);
  const double* const rows = a.rows[block()];
  unsigned levels = 0;  // of the nodes
  while (BatchSum::kThreads >> levels > 1) ++levels;
  // Levels of a subtree, whose leaves hold one number or none.
  unsigned below = 0;
  while ((std::size_t(BatchSum::kThreads) << below) < count) ++below;

  PartOfSum finished[kMostDepth];
  for (std::size_t leaf = 0; leaf < std::size_t(1) << below; ++leaf) {
    const std::size_t node = (std::size_t(thread()) << below) + leaf;
    const TreeRange range = tree_range(count, node, levels + below);
    PartOfSum part{range.count > 0 ? rows[range.first] : 0, range.count == 0};
    unsigned level = 0;
    for (; (leaf >> level & 1) != 0; ++level) part = sum_of_parts(finished[level], part);
    finished[level] = part;
  }
  PartOfSum* const parts = shared<PartOfSum, BatchSum::kThreads>();
  parts[thread()] = finished[below];
  for (unsigned nodes = BatchSum::kThreads / 2; nodes > 0; nodes /= 2) {
    barrier();
    const PartOfSum part =
        sum_of_parts(parts[2 * (thread() % nodes)], parts[2 * (thread() % nodes) + 1]);
    barrier();
    if (thread() < nodes) parts[thread()] = part;
  }
  if (thread() == 0) a.sums[block()] = parts[0].sum;
}

// Returns word `index` of the data. A short last word is padded with zeros.
__device__ inline std::uint32_t word_at(const Checksum& a, std::size_t index) {
  const std::size_t at = index * 4;
  const auto* const bytes = static_cast<const std::uint8_t*>(a.data) + at;
  if (reinterpret_cast<std::uintptr_t>(a.data) % 4 == 0 && a.bytes - at >= 4) {
    return *reinterpret_cast<const std::uint32_t*>(bytes);
  }
  std::uint32_t word = 0;
  for (std::size_t k = 0; k < 4 && at + k < a.bytes; ++k) word |= std::uint32_t(bytes[k]) << 8 * k;
  return word;
}

// Adds the part of thread `first` of `stride`.
__device__ inline void add_checksum(const Checksum& a, std::size_t first, std::size_t stride) {
  using Words = WideAccess<std::uint32_t>;
  std::uint64_t sum = 0;
  const std::size_t whole = wide_accesses(a.data) ? a.bytes / sizeof(Words) : 0;
  for (std::size_t i = first; i < whole; i += stride) {
    const Words words = static_cast<const Words*>(a.data)[i];
    for (std::size_t k = 0; k < Words::kCount; ++k) {
      sum += checksum_word(words.values[k], a.offset + i * Words::kCount + k);
    }
  }
  for (std::size_t i = whole * Words::kCount + first; i * 4 < a.bytes; i += stride) {
    sum += checksum_word(word_at(a, i), a.offset + i);
  }
  sum = sum_of_warp(sum);
  if (lane() == 0) atomic_add(a.sum, sum);
}

template <class T>
__device__ void run(const Checksum& a) {
  add_checksum(a, first_index(), index_stride());
}

template <class T>
__device__ void run(const Checksums& a) {
  const std::size_t begin = a.ranges[2 * block()], end = a.ranges[2 * block() + 1];
  add_checksum({static_cast<const std::byte*>(a.data) + begin * a.width, (end - begin) * a.width, 0,
                a.sums + block()},
               std::size_t(block_row()) * threads() + thread(),
               std::size_t(block_rows()) * threads());
}

}  // namespace lockstep::engine::cuda
