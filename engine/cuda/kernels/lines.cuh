// SPDX-License-Identifier: MIT
// The ways through a batch that engine/cuda/kernels/lines.h describes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <grid.cuh>

#include "engine/cuda/kernels/lines.h"
#include "engine/cuda/kernels/pack.cuh"
#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

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

// Lines first, first + step, ... below `lines`: some are read before the first of them is used, so
// that their loads are under way together.
template <class Read, class Use>
__device__ void each_line(std::size_t first, std::size_t step, std::size_t lines, Read read,
                          Use use) {
  constexpr unsigned kAtOnce = 2;
  std::size_t line = first;
  for (; line + (kAtOnce - 1) * step < lines; line += kAtOnce * step) {
    decltype(read(line)) values[kAtOnce];
    for (unsigned k = 0; k < kAtOnce; ++k) values[k] = read(line + k * step);
    for (unsigned k = 0; k < kAtOnce; ++k) use(line + k * step, values[k]);
  }
  for (; line < lines; line += step) use(line, read(line));
}

template <unsigned kSums, unsigned kWidth>
struct ChannelSums {
  double values[kSums][kWidth] = {};
};

// For each chunk kSums sums of each channel, into `partial` [chunks][kSums][channels]. `make` of
// the first channel of a group gives what adds its lines: read(line) and add(line, what was read,
// sums).
template <unsigned kWidth, unsigned kSums, class Make>
__device__ void sum_lines(std::size_t lines, std::size_t channels, unsigned chunks, double* partial,
                          Make make) {
  const Threads<kWidth> mine(channels);
  double* const block_sums = shared<double, kWidth * kLineThreads>();
  for (std::size_t tile = block(); tile < mine.tiles(); tile += blocks()) {
    const std::size_t begin = tile * mine.tile * kWidth;
    for (unsigned chunk = block_row(); chunk < chunks; chunk += block_rows()) {
      ChannelSums<kSums, kWidth> sums;
      if (mine.works(tile)) {
        const auto adder = make(mine.channel(tile));
        each_line(
            std::size_t(chunk) * mine.slots + mine.slot, std::size_t(chunks) * mine.slots, lines,
            [&](std::size_t line) { return adder.read(line); },
            [&](std::size_t line, const auto& values) { adder.add(line, values, sums); });
      }
      for (unsigned k = 0; k < kSums; ++k) {
        barrier();
        for (unsigned w = 0; w < kWidth; ++w)
          block_sums[w * kLineThreads + thread()] = sums.values[k][w];
        barrier();
        for (unsigned i = thread(); i < mine.tile * kWidth; i += threads()) {
          if (begin + i >= channels) continue;
          const double* const from = block_sums + (i % kWidth) * kLineThreads + i / kWidth;
          double total = 0;
          for (unsigned slot = 0; slot < mine.slots; ++slot)
            total += from[std::size_t(slot) * mine.tile];
          partial[(std::size_t(chunk) * kSums + k) * channels + begin + i] = total;
        }
      }
    }
  }
}

// Adds the chunks of `count` sums, and calls put(i, total) once for each.
template <class Put>
__device__ void add_chunks(const double* partial, unsigned chunks, std::size_t count, Put put) {
  constexpr unsigned kSlots = kLineThreads / kFinishSums;
  double* const parts = shared<double, kLineThreads>();
  const unsigned lane = thread() % kFinishSums, slot = thread() / kFinishSums;
  for (std::size_t tile = block(); tile * kFinishSums < count; tile += blocks()) {
    const std::size_t i = tile * kFinishSums + lane;
    double part = 0;
    for (unsigned chunk = slot; i < count && chunk < chunks; chunk += kSlots)
      part += partial[chunk * count + i];
    barrier();
    parts[thread()] = part;
    barrier();
    if (slot != 0 || i >= count) continue;
    double total = 0;
    for (unsigned s = 0; s < kSlots; ++s) total += parts[s * kFinishSums + lane];
    put(i, total);
  }
}

// A gradient of a parameter, where it is wanted.
template <class T>
__device__ void put_gradient(T* to, std::size_t at, double value, bool accumulate) {
  if (to == nullptr) return;
  to[at] = narrow<T>(float(value) + (accumulate ? wide(to[at]) : 0.0f));
}

}  // namespace lockstep::engine::cuda
