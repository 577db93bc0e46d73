// SPDX-License-Identifier: MIT
// The ways through a batch that engine/cuda/kernels/lines.h describes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <grid.cuh>
#include <type_traits>

#include "engine/cuda/kernels/lines.h"
#include "engine/cuda/kernels/pack.cuh"
#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

// How a thread reads a group: how many channels, and whether by accesses of 16 bytes.
template <unsigned kChannels, bool kWide>
struct Way {
  static constexpr unsigned kWidth = kChannels;
  static constexpr bool kAligned = kWide;
};
// Calls visit with the way that `channels` go, of arrays that are aligned or not.
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

// Where a thread works in the tiles of `channels`, which are whole groups of kWidth.
template <unsigned kWidth>
struct Threads {
  std::size_t groups;
  unsigned tile, slots;  // groups of a tile, lines that a block works on at a time
  unsigned group, slot;  // of these the thread's

  __device__ explicit Threads(std::size_t channels)
      : groups(channels / kWidth),
        tile(unsigned(least(groups, kLineGroups))),
        slots(kLineThreads / tile),
        group(thread() % tile),
        slot(thread() / tile) {}
  __device__ std::size_t tiles() const { return (groups + tile - 1) / tile; }
  __device__ bool works(std::size_t at) const { return slot < slots && at * tile + group < groups; }
  __device__ std::size_t channel(std::size_t at) const { return (at * tile + group) * kWidth; }
};

// Lines first, first + step, ... below `lines`, kAtOnce of them read before the first of them is
// used, so that their loads are under way together: use(line, step, what was read of so many).
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

// The same for each line by itself.
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

// What numbers of T are added in before they are added up in float64: the products of two numbers
// of 16 bits, and the sum of a few of them, have room in float32.
template <class T>
using FewSums = std::conditional_t<sizeof(T) == 2, float, double>;

// Whether the block is the last of `count` that come here; then it may read, by read_fresh, what
// the others have written before. All threads of the block call it.
__device__ inline bool is_last(std::uint32_t* ticket, unsigned count) {
  std::uint32_t* const before = shared<std::uint32_t, 1>();
  fence();
  barrier();
  if (thread() == 0) {
    *before = count_up(ticket);
    if (*before + 1 == count) *ticket = 0;
  }
  barrier();
  const bool last = *before + 1 == count;
  if (last) fence();
  return last;
}

// Adds the sums of one tile over all chunks, where the block is the last that has some: end.put(c,
// totals, end.fetch(c)) once for each channel.
template <unsigned kSums, class End>
class TileSums {
 public:
  __device__ TileSums(const Partials& partials, std::size_t channels, std::size_t tile,
                      unsigned begin, unsigned end_of_tile, const End& end)
      : partials_(partials),
        channels_(channels),
        begin_(begin),
        count_(unsigned(least(end_of_tile, channels)) - begin),
        groups_(chunk_groups(partials.chunks)),
        tickets_(partials.tickets + tile * (groups_ + 1)),
        end_(end) {}

  __device__ double* at(unsigned chunk, unsigned k, unsigned i) const {
    return partials_.sums + (std::size_t(chunk) * kSums + k) * channels_ + begin_ + i;
  }
  __device__ unsigned count() const { return count_; }

  // The chunk's sums have been written.
  __device__ void done(unsigned chunk) const {
    const unsigned group = chunk / kChunkGroup, first = group * kChunkGroup;
    const unsigned members = unsigned(least(kChunkGroup, partials_.chunks - first));
    if (!is_last(tickets_ + group, members)) return;
    if (groups_ == 1) return finish(1, members);
    for (unsigned i = thread(); i < count_; i += threads())
      for (unsigned k = 0; k < kSums; ++k) *at(first, k, i) = total(first, 1, members, k, i);
    if (is_last(tickets_ + groups_, groups_)) finish(kChunkGroup, groups_);
  }

 private:
  __device__ double total(unsigned first, unsigned step, unsigned count, unsigned k,
                          unsigned i) const {
    double sum = 0;
    for (unsigned c = 0; c < count; ++c) sum += read_fresh(at(first + c * step, k, i));
    return sum;
  }
  __device__ void finish(unsigned step, unsigned count) const {
    for (unsigned i = thread(); i < count_; i += threads()) {
      const auto fetched = end_.fetch(begin_ + i);
      double totals[kSums];
      for (unsigned k = 0; k < kSums; ++k) totals[k] = total(0, step, count, k, i);
      end_.put(begin_ + i, totals, fetched);
    }
  }

  const Partials& partials_;
  std::size_t channels_;
  unsigned begin_, count_, groups_;
  std::uint32_t* tickets_;
  const End& end_;
};

// kSums sums over lines of each channel. `make` of the first channel of a group gives what adds its
// lines: read(line) and add(line, step, values of so many lines, sums); `end` gets the sums.
template <unsigned kWidth, unsigned kSums, unsigned kAtOnce, class Sum = double, class Make,
          class End>
__device__ void sum_lines(std::size_t lines, std::size_t channels, const Partials& partials,
                          Make make, const End& end) {
  const Threads<kWidth> mine(channels);
  const unsigned chunks = partials.chunks, width = mine.tile * kWidth;
  double* const block_sums = shared<double, kWidth * kLineThreads>();
  for (std::size_t tile = block(); tile < mine.tiles(); tile += blocks()) {
    const unsigned begin = unsigned(tile) * width;
    const TileSums<kSums, End> tile_sums(partials, channels, tile, begin, begin + width, end);
    for (unsigned chunk = block_row(); chunk < chunks; chunk += block_rows()) {
      ChannelSums<kSums, kWidth, Sum> sums;
      if (mine.works(tile)) {
        const auto adder = make(mine.channel(tile));
        const std::size_t step = std::size_t(chunks) * mine.slots;
        each_lines<kAtOnce>(
            std::size_t(chunk) * mine.slots + mine.slot, step, lines,
            [&](std::size_t line) { return adder.read(line); },
            [&](std::size_t line, const auto& values) { adder.add(line, step, values, sums); });
      }
      for (unsigned k = 0; k < kSums; ++k) {
        barrier();
        for (unsigned w = 0; w < kWidth; ++w)
          block_sums[w * kLineThreads + thread()] = sums.values[k][w];
        barrier();
        for (unsigned i = thread(); i < tile_sums.count(); i += threads()) {
          const double* const from = block_sums + (i % kWidth) * kLineThreads + i / kWidth;
          double total = 0;
          for (unsigned slot = 0; slot < mine.slots; ++slot)
            total += from[std::size_t(slot) * mine.tile];
          *tile_sums.at(chunk, k, i) = total;
        }
      }
      tile_sums.done(chunk);
    }
  }
}

// A gradient of a parameter, where it is wanted.
template <class T>
__device__ void put_gradient(T* to, std::size_t at, double value, bool accumulate) {
  if (to == nullptr) return;
  to[at] = narrow<T>(float(value) + (accumulate ? wide(to[at]) : 0.0f));
}

}  // namespace lockstep::engine::cuda
