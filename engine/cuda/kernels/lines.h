// SPDX-License-Identifier: MIT
// How kernels go through a batch of activations by channels. A line is the channels of one position
// of one row; lines lie one behind the other. A block works on a tile of channels, its threads side
// by side on groups of them (of kPack channels where there are whole ones, else of one) and one
// below the other on lines.
//
// Sums over lines are taken in chunks, whose number follows from the sizes alone, and the last
// block of a tile adds its chunks in a fixed order: so a sum is there when the kernel ends, and has
// the same bits whatever the grid. `tickets` tell who is the last; they are zero before and after.
// Tiles of sums are narrow, so that they have few chunks.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lockstep::engine::cuda {

inline constexpr unsigned kLineThreads = 256;    // of a block of all these kernels
inline constexpr unsigned kLineGroups = 32;      // largest tile of kernels that write
inline constexpr unsigned kSumGroups = 4;        // tile of kernels that add
inline constexpr unsigned kWideSumGroups = 8;    // likewise, for large batches
inline constexpr unsigned kLineResidents = 3;    // blocks that a multiprocessor has room for
inline constexpr unsigned kPairResidents = 2;    // likewise, of kernels that write for two layers
inline constexpr unsigned kSumResidents = 2;     // likewise, of kernels that add lines
inline constexpr unsigned kMostSumBlocks = 264;  // of these: an H100 has room for as many

constexpr std::size_t least(std::size_t a, std::size_t b) {
  return a < b ? a : b;
}

constexpr std::size_t line_groups(std::size_t channels) {
  return channels % 8 == 0 ? channels / 8 : channels;
}

// Returns the first extent of the grid of a kernel that writes each line.
constexpr unsigned line_tiles(std::size_t channels) {
  return unsigned((line_groups(channels) + kLineGroups - 1) / kLineGroups);
}

// Returns how many lines a block of such a kernel works on at a time.
constexpr unsigned line_slots(std::size_t channels) {
  return kLineThreads / unsigned(least(line_groups(channels), kLineGroups));
}

// Returns how many blocks each of `tiles` gets so that all of `most` run at a time: one block more
// would run alone, behind all others.
constexpr std::size_t blocks_of_tile(std::size_t most, std::size_t tiles) {
  return most < tiles ? 1 : most / tiles;
}

// Returns the second extent of the grid of a kernel that writes each line.
constexpr unsigned line_blocks(std::size_t lines, std::size_t channels, int multiprocessors,
                               unsigned residents = kLineResidents) {
  const std::size_t wanted = lines / (std::size_t(4) * line_slots(channels)) + 1;
  const std::size_t most = std::size_t(multiprocessors) * residents;
  return unsigned(least(wanted, blocks_of_tile(most, line_tiles(channels))));
}

// Returns the first extent of the grid of a kernel that adds lines of so many groups, by tiles of
// `tile` groups.
constexpr unsigned sum_tiles(std::size_t groups, unsigned tile = kSumGroups) {
  return unsigned((groups + tile - 1) / tile);
}

// Returns the second one, the chunks of each tile.
constexpr unsigned sum_chunks(std::size_t lines, std::size_t groups, unsigned tile = kSumGroups) {
  const std::size_t wanted = lines * tile / (8 * kLineThreads) + 1;
  return unsigned(least(wanted, blocks_of_tile(kMostSumBlocks, sum_tiles(groups, tile))));
}

// Memory of kernels that add lines: [chunks][sums of a channel][channels] numbers, and a ticket for
// each tile.
struct Partials {
  unsigned chunks = 1;
  double* sums = nullptr;
  std::uint32_t* tickets = nullptr;
  unsigned tile = kSumGroups;  // its groups; kWideSumGroups where the kernel knows them
};

}  // namespace lockstep::engine::cuda
