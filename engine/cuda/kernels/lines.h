// SPDX-License-Identifier: MIT
// How kernels go through a batch of activations by channels. A line is the channels of one position
// of one row; lines lie one behind the other. A block works on a tile of channels, its threads side
// by side on groups of them (of kPack channels where there are whole ones, else of one) and one
// below the other on lines.
//
// Sums over lines are taken in chunks, whose number follows from the sizes alone. Chunks are added
// in their order, kChunkGroup of them by the block that is the last of these to end, and what that
// gives by the last of all: so a sum is there when the kernel ends, and has the same bits whatever
// the grid. Who is the last is counted in `tickets`, which are zero before and after.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lockstep::engine::cuda {

inline constexpr unsigned kLineThreads = 256;    // of a block of all these kernels
inline constexpr unsigned kLineGroups = 32;      // of a tile at most
inline constexpr unsigned kLineResidents = 3;    // blocks that a multiprocessor has room for
inline constexpr unsigned kMostSumBlocks = 396;  // of kernels that add lines: an H200 has as many
inline constexpr unsigned kChunkGroup = 16;

constexpr std::size_t least(std::size_t a, std::size_t b) {
  return a < b ? a : b;
}

constexpr std::size_t line_groups(std::size_t channels) {
  return channels % 8 == 0 ? channels / 8 : channels;
}

// Blocks of the first extent of a grid.
constexpr unsigned line_tiles(std::size_t channels) {
  return unsigned((line_groups(channels) + kLineGroups - 1) / kLineGroups);
}

// Lines that a block works on at a time.
constexpr unsigned line_slots(std::size_t channels) {
  return kLineThreads / unsigned(least(line_groups(channels), kLineGroups));
}

// Of the second extent, of kernels that write each line: each thread has some lines, and there are
// twice the blocks that run at a time.
constexpr unsigned line_blocks(std::size_t lines, std::size_t channels, int multiprocessors) {
  const std::size_t wanted = lines / (std::size_t(4) * line_slots(channels)) + 1;
  const std::size_t most =
      std::size_t(multiprocessors) * 2 * kLineResidents / line_tiles(channels) + 1;
  return unsigned(least(wanted, most));
}

// Of kernels that add lines.
constexpr unsigned line_chunks(std::size_t lines, std::size_t channels) {
  const std::size_t wanted = lines / (std::size_t(8) * line_slots(channels)) + 1;
  return unsigned(least(wanted, kMostSumBlocks / line_tiles(channels) + 1));
}

constexpr unsigned chunk_groups(unsigned chunks) {
  return (chunks + kChunkGroup - 1) / kChunkGroup;
}

// What kernels that add lines need: [chunks][sums of a channel][channels] numbers, and tickets for
// each tile.
struct Partials {
  unsigned chunks = 1;
  double* sums = nullptr;
  std::uint32_t* tickets = nullptr;
};
constexpr std::size_t line_tickets(std::size_t channels, unsigned chunks) {
  return std::size_t(line_tiles(channels)) * (chunk_groups(chunks) + 1);
}

}  // namespace lockstep::engine::cuda
