// SPDX-License-Identifier: MIT
// Implementation of the loops and sums that engine/cuda/kernels/lines.h describes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <grid.cuh>
#include <type_traits>

#include "engine/cuda/kernels/lines.h"
#include "engine/cuda/kernels/pack.cuh"
#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

// Describes the accesses to a group: its channels, and whether accesses have 16 bytes.
template <unsigned kChannels, bool kWide>
struct Way {
  static constexpr unsigned kWidth = kChannels;
  static constexpr bool kAligned = kWide;
};
// Calls `visit` with the access mode for `channels` and the alignment of the arrays.
template <class Visit>
__device__ void go(std::size_t channels, bool aligned, Visit visit) {
  if (channels % kPack != 0) {
    visit(Way<1, false>());
  } else if (aligned) {
    visit(Way<kPack, true>());
  } else {
    visit(Way<kPack, false>());
  }
}

// Computes a thread's position in the tiles of `channels`, which are whole groups of kWidth.
template <unsigned kWidth>
struct Threads {
  std::size_t groups;
  unsigned tile, slots;  // groups per tile, lines per block and pass
  unsigned group, slot;  // this thread's group and line

  __device__ explicit Threads(std::size_t channels)
      : Threads(channels, unsigned(least(channels / kWidth, kLineGroups))) {}
  __device__ Threads(std::size_t channels, unsigned groups_of_tile)
      : groups(channels / kWidth),
        tile(groups_of_tile),
        slots(kLineThreads / tile),
        group(thread() % tile),
        slot(thread() / tile) {}
  __device__ std::size_t tiles() const { return (groups + tile - 1) / tile; }
  __device__ bool works(std::size_t at) const { return slot < slots && at * tile + group < groups; }
  __device__ std::size_t channel(std::size_t at) const { return (at * tile + group) * kWidth; }
};

// Visits lines first, first + step, ... below `lines`. It reads kAtOnce lines before it uses the
// first, so that their loads overlap. Calls use(line, step, values of up to kAtOnce lines).
template <unsigned kAtOnce, class Read, class Use>
__device__ void each_lines(std::size_t first, std::size_t step, std::size_t lines, Read read,
                           Use use) {
  using Value = decltype(read(first));
  std::size_t line = first;
  for (; line + (kAtOnce - 1) * step < lines; line += kAtOnce * step) {
    Value values[kAtOnce];
    repeat<kAtOnce>([&](unsigned k) { values[k] = read(line + k * step); });
    use(line, values);
  }
  for (; line < lines; line += step) {
    const Value value[1] = {read(line)};
    use(line, value);
  }
}

// Does the same, but calls `use` for each line separately.
template <unsigned kAtOnce, class Read, class Use>
__device__ void each_line(std::size_t first, std::size_t step, std::size_t lines, Read read,
                          Use use) {
  each_lines<kAtOnce>(
      first, step, lines, read,
      [&]<std::size_t kCount>(std::size_t line, const decltype(read(first))(&values)[kCount]) {
        repeat<kCount>([&](unsigned k) { use(line + k * step, values[k]); });
      });
}

template <unsigned kSums, unsigned kWidth, class Sum = double>
struct ChannelSums {
  Sum values[kSums][kWidth] = {};
};

// Selects the type in which a few numbers of T are added before they are added in float64. Products
// of two 16-bit numbers, and sums of a few of them, fit into float32.
template <class T>
using FewSums = std::conditional_t<sizeof(T) == 2, float, double>;

// Returns whether the block is the last of `count` to arrive here. That block may read with
// read_fresh what the others have written before. All threads of the block call it.
__device__ inline bool is_last(std::uint32_t* ticket, unsigned count) {
  std::uint32_t* const before = shared<std::uint32_t, 1>();
  barrier();
  if (thread() == 0) {
    *before = count_up(ticket);
    if (*before + 1 == count) *ticket = 0;
  }
  barrier();
  return *before + 1 == count;
}

// Describes the part of an array that a lane holds.
struct LaneShare {
  unsigned first, count;
};

// Adds the arrays of all lanes whose indices differ in the bits kMask, kMask / 2, ..., kLeast, in
// float64. Each exchange halves the numbers that a lane holds. Returns the lane's share, which
// starts at sums[0]. All lanes of a warp call it.
template <unsigned kMask, unsigned kLeast, class Number, unsigned kCount, unsigned kShare>
__device__ LaneShare add_lanes(const Number (&numbers)[kCount], unsigned lane, LaneShare share,
                               double (&sums)[kShare]) {
  constexpr unsigned kHalf = (kCount + 1) / 2;
  const bool upper = (lane & kMask) != 0;
  double half[kHalf];
  repeat<kHalf>([&](unsigned i) {
    const Number low = numbers[i], high = i + kHalf < kCount ? numbers[i + kHalf] : Number(0);
    half[i] = double(upper ? high : low) + double(shuffle_xor(upper ? low : high, kMask));
  });
  if (upper) share.first += kHalf;
  if (upper) {
    share.count = share.count > kHalf ? share.count - kHalf : 0;
  } else {
    share.count = share.count < kHalf ? share.count : kHalf;
  }
  if constexpr (kMask > kLeast) {
    return add_lanes<kMask / 2, kLeast>(half, lane, share, sums);
  } else {
    static_assert(kHalf == kShare);
    repeat<kHalf>([&](unsigned i) { sums[i] = half[i]; });
    return share;
  }
}

// Adds the sums of a tile, from the threads of a block to the result.
template <unsigned kWidth, unsigned kSums, unsigned kGroups, class End>
class TileSums {
 public:
  static constexpr unsigned kWarpThreads = 32, kWarps = kLineThreads / kWarpThreads;
  static constexpr unsigned kChannels = kGroups * kWidth;  // of a tile; the last may have fewer
  static constexpr unsigned kNumbers = kSums * kChannels;
  // Threads that add the chunks of a number. Each adds a consecutive part of them.
  static constexpr unsigned kParts = kNumbers < kLineThreads ? kLineThreads / kNumbers : 1;

  __device__ TileSums(const Partials& partials, std::size_t channels, std::size_t tile,
                      const End& end)
      : partials_(partials),
        channels_(channels),
        begin_(tile * kChannels),
        count_(unsigned(least(kChannels, channels - begin_))),
        ticket_(partials.tickets + tile),
        end_(end) {}

  // Stores the sums of all threads as those of a chunk.
  template <class Sum>
  __device__ void add_threads(unsigned chunk, const ChannelSums<kSums, kWidth, Sum>& sums) const {
    double* const of_warps = shared<double, kWarps * kNumbers>();
    const unsigned lane = thread() % kWarpThreads, group = lane % kGroups;
    constexpr unsigned kSlots = kWarpThreads / kGroups;
    constexpr unsigned kShare = (kSums * kWidth + kSlots - 1) / kSlots;
    Sum mine[kSums * kWidth];
    for (unsigned k = 0; k < kSums; ++k)
      for (unsigned w = 0; w < kWidth; ++w) mine[k * kWidth + w] = sums.values[k][w];
    double added[kShare];
    const LaneShare share =
        add_lanes<kWarpThreads / 2, kGroups>(mine, lane, {0, kSums * kWidth}, added);
    double* const to = of_warps + thread() / kWarpThreads * kNumbers + group * kWidth;
    repeat<kShare>([&](unsigned i) {
      const unsigned n = share.first + i;
      if (i < share.count) to[n / kWidth * kChannels + n % kWidth] = added[i];
    });
    barrier();
    for (unsigned n = thread(); n < kNumbers; n += kLineThreads) {
      double total = 0;
      for (unsigned other = 0; other < kWarps; ++other) total += of_warps[other * kNumbers + n];
      if (n % kChannels < count_) *at(chunk, n) = total;
    }
  }

  // Calls end.put(c, totals, end.fetch(c)) once per channel, in the last block of the tile.
  __device__ void add_chunks() const {
    if (!is_last(ticket_, partials_.chunks)) return;
    double* const of_parts = shared<double, kParts * kNumbers, 1>();
    decltype(end_.fetch(0)) fetched{};
    if (thread() < count_) fetched = end_.fetch(begin_ + thread());
    for (unsigned i = thread(); i < kParts * kNumbers; i += kLineThreads) {
      const unsigned part = i / kNumbers, n = i - part * kNumbers;
      if (n % kChannels < count_)
        of_parts[i] =
            stretch(n, partials_.chunks * part / kParts, partials_.chunks * (part + 1) / kParts);
    }
    barrier();
    if (thread() >= count_) return;
    double totals[kSums] = {};
    for (unsigned k = 0; k < kSums; ++k)
      for (unsigned part = 0; part < kParts; ++part)
        totals[k] += of_parts[part * kNumbers + k * kChannels + thread()];
    end_.put(begin_ + thread(), totals, fetched);
  }

 private:
  __device__ double* at(unsigned chunk, unsigned n) const {
    return partials_.sums + (std::size_t(chunk) * kSums + n / kChannels) * channels_ + begin_ +
           n % kChannels;
  }
  // Adds in order, but overlaps the loads of several chunks, which take longest.
  __device__ double stretch(unsigned n, unsigned begin, unsigned end) const {
    constexpr unsigned kAtOnce = 16;
    double sum = 0;
    for (unsigned first = begin; first < end; first += kAtOnce) {
      double values[kAtOnce];
      repeat<kAtOnce>(
          [&](unsigned k) { values[k] = first + k < end ? read_fresh(at(first + k, n)) : 0; });
      repeat<kAtOnce>([&](unsigned k) { sum += values[k]; });
    }
    return sum;
  }

  const Partials& partials_;
  std::size_t channels_, begin_;
  unsigned count_;  // channels of this tile
  std::uint32_t* ticket_;
  const End& end_;
};

// Computes kSums sums over the lines of each channel, in tiles of kGroups groups. `make`(first
// channel of a group) returns an adder with read(line) and add(line, step, values of lines line,
// line - step, ..., sums). `end` receives the sums. The loop runs from the last line to the first.
// The cache still holds what was written last, mostly by the previous kernel, and the next kernel
// finds the first lines there.
template <unsigned kWidth, unsigned kSums, unsigned kAtOnce, class Sum = double,
          unsigned kGroups = kSumGroups, class Make, class End>
__device__ void sum_lines(std::size_t lines, std::size_t channels, const Partials& partials,
                          Make make, const End& end) {
  const Threads<kWidth> mine(channels, kGroups);
  const unsigned chunks = partials.chunks;
  for (std::size_t tile = block(); tile < mine.tiles(); tile += blocks()) {
    const TileSums<kWidth, kSums, kGroups, End> tile_sums(partials, channels, tile, end);
    for (unsigned chunk = block_row(); chunk < chunks; chunk += block_rows()) {
      ChannelSums<kSums, kWidth, Sum> sums;
      if (mine.works(tile)) {
        const auto adder = make(mine.channel(tile));
        const std::size_t step = std::size_t(chunks) * mine.slots;
        each_lines<kAtOnce>(
            std::size_t(chunk) * mine.slots + mine.slot, step, lines,
            [&](std::size_t line) { return adder.read(lines - 1 - line); },
            [&](std::size_t line, const auto& values) {
              adder.add(lines - 1 - line, step, values, sums);
            });
      }
      tile_sums.add_threads(chunk, sums);
      tile_sums.add_chunks();
    }
  }
}

// Writes or adds to the gradient of a parameter, if wanted.
template <class T>
__device__ void put_gradient(T* to, std::size_t at, double value, bool accumulate) {
  if (to == nullptr) return;
  to[at] = narrow<T>(float(value) + (accumulate ? wide(to[at]) : 0.0f));
}

}  // namespace lockstep::engine::cuda
