// SPDX-License-Identifier: MIT
// Traversal of a batch of activations by channels. A line holds the channels of one position of one
// row; lines are contiguous. A block works on a tile of channels. Its threads work side by side on
// groups of kPack channels, or of one if `channels` is not divisible, and below each other on
// lines.
//
// Sums over lines are computed in chunks, whose number depends on the sizes only. The last block of
// a tile adds the chunks in a fixed order. A sum is thus complete when the kernel ends, and has the
// same bits for any grid. `tickets` identify the last block; they are zero before and after. Tiles
// of sums are narrow, so that they have few chunks.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lockstep::engine::cuda {

// The residents are blocks per multiprocessor. Their loads keep at least 17 KB in flight on each
// multiprocessor, which an H100 needs: 2.9 TB/s times 0.8 us of latency.
inline constexpr unsigned kLineThreads = 256;    // per block, in all these kernels
inline constexpr unsigned kLineGroups = 32;      // largest tile of kernels that write
inline constexpr unsigned kSumGroups = 4;        // tile of kernels that add
inline constexpr unsigned kWideSumGroups = 8;    // likewise, for large batches
inline constexpr unsigned kLineResidents = 3;    // blocks per multiprocessor
inline constexpr unsigned kPairResidents = 2;    // likewise, for kernels writing for two layers
inline constexpr unsigned kSumResidents = 2;     // likewise, for kernels that add lines
inline constexpr unsigned kMostSumBlocks = 264;  // of kernels that add; an H100's capacity

constexpr std::size_t least(std::size_t a, std::size_t b) {
  return a < b ? a : b;
}

constexpr std::size_t line_groups(std::size_t channels) {
  return channels % 8 == 0 ? channels / 8 : channels;
}

// Returns the first grid dimension of a kernel that writes each line.
constexpr unsigned line_tiles(std::size_t channels) {
  return unsigned((line_groups(channels) + kLineGroups - 1) / kLineGroups);
}

// Returns how many lines a block of such a kernel processes at a time.
constexpr unsigned line_slots(std::size_t channels) {
  return kLineThreads / unsigned(least(line_groups(channels), kLineGroups));
}

// Returns the blocks per tile for which all of `most` blocks run at a time. One more block would
// run alone after the others.
constexpr std::size_t blocks_of_tile(std::size_t most, std::size_t tiles) {
  return most < tiles ? 1 : most / tiles;
}

// Returns the second grid dimension of a kernel that writes each line.
constexpr unsigned line_blocks(std::size_t lines, std::size_t channels, int multiprocessors,
                               unsigned residents = kLineResidents) {
  const std::size_t wanted = lines / (std::size_t(4) * line_slots(channels)) + 1;
  const std::size_t most = std::size_t(multiprocessors) * residents;
  return unsigned(least(wanted, blocks_of_tile(most, line_tiles(channels))));
}

// Returns the first grid dimension of a kernel that adds lines of `groups` groups, in tiles of
// `tile` groups.
constexpr unsigned sum_tiles(std::size_t groups, unsigned tile = kSumGroups) {
  return unsigned((groups + tile - 1) / tile);
}

// Returns the second grid dimension, the chunks per tile.
constexpr unsigned sum_chunks(std::size_t lines, std::size_t groups, unsigned tile = kSumGroups) {
  const std::size_t wanted = lines * tile / (8 * kLineThreads) + 1;
  return unsigned(least(wanted, blocks_of_tile(kMostSumBlocks, sum_tiles(groups, tile))));
}

// Memory of kernels that add lines: [chunks][sums of a channel][channels] numbers, and a ticket per
// tile.
struct Partials {
  unsigned chunks = 1;
  double* sums = nullptr;
  std::uint32_t* tickets = nullptr;
  unsigned tile = kSumGroups;  // groups; kWideSumGroups if the kernel supports it
};

}  // namespace lockstep::engine::cuda
