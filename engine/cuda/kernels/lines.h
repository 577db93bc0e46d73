// SPDX-License-Identifier: MIT
// How kernels go through a batch of activations by channels. A line is the channels of one position
// of one row; lines lie one behind the other. A block works on a tile of channels, its threads side
// by side on groups of them (of kPack channels where there are whole ones, else of one) and one
// below the other on lines. Sums over lines are taken in chunks, whose number follows from the
// sizes alone, and chunks are added in their order: so a sum has the same bits whatever the grid.
#pragma once
#include <cstddef>

namespace lockstep::engine::cuda {

inline constexpr unsigned kLineThreads = 256;  // of a block of all these kernels
inline constexpr unsigned kLineGroups = 32;    // of a tile at most
inline constexpr unsigned kMostChunks = 256;

constexpr std::size_t least(std::size_t a, std::size_t b) {
  return a < b ? a : b;
}

// Blocks of the first extent of a grid.
constexpr unsigned line_tiles(std::size_t channels) {
  const std::size_t groups = channels % 8 == 0 ? channels / 8 : channels;
  return unsigned((groups + kLineGroups - 1) / kLineGroups);
}

// Of the second, of kernels that write each line: so that each thread has some lines.
constexpr unsigned line_blocks(std::size_t lines, std::size_t channels) {
  const std::size_t wanted = lines / 64 + 1, most = 4096 / line_tiles(channels) + 1;
  return unsigned(least(wanted, most));
}

// Of kernels that add lines; partial sums are chunks times sums times channels float64.
constexpr unsigned line_chunks(std::size_t lines, std::size_t channels) {
  const std::size_t wanted = lines / 64 + 1, most = 1024 / line_tiles(channels) + 16;
  return unsigned(least(least(wanted, most), kMostChunks));
}

// Blocks that add the chunks of `sums` numbers.
inline constexpr unsigned kFinishSums = 32;  // of a block
constexpr unsigned finish_blocks(std::size_t sums) {
  return unsigned((sums + kFinishSums - 1) / kFinishSums);
}

}  // namespace lockstep::engine::cuda
