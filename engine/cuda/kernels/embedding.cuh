// SPDX-License-Identifier: MIT
// The kernels of embedding.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <numbers.cuh>

#include "engine/cuda/kernels/elements.cuh"
#include "engine/cuda/kernels/embedding.h"
#include "engine/ops/definitions.h"

namespace lockstep::engine::cuda {

template <class T>
__device__ void run(const EmbeddingRows& a) {
  const std::size_t picks = std::size_t(a.state->examples) * a.fields;
  for (std::size_t i = first_index(); i < picks; i += index_stride()) {
    const auto [row, field] = divide(i, a.fields);
    const float id = wide(static_cast<const T*>(a.x)[row * a.columns + a.first + field]);
    const bool known = is_index(id, a.rows);
    if (!known) atomic_min(&a.problem->first, i);
    a.places[i] = std::uint32_t(field * a.rows + (known ? std::size_t(id) : 0));
  }
}

template <class Unit, class T>
__device__ void copy_picked_rows(const EmbeddingForward& a) {
  const std::size_t width = a.columns / Unit::kCount;  // units per row
  const std::size_t count = std::size_t(a.state->examples) * a.fields * width;
  for (std::size_t i = first_index(); i < count; i += index_stride()) {
    const auto [pick, column] = divide(i, width);
    static_cast<Unit*>(a.y)[i] = static_cast<const Unit*>(a.w)[a.places[pick] * width + column];
  }
}

template <class Unit, class T>
__device__ void sum_picked_rows(const EmbeddingForward& a) {
  const std::size_t width = a.columns / Unit::kCount;
  const std::size_t count = std::size_t(a.state->examples) * width;
  for (std::size_t i = first_index(); i < count; i += index_stride()) {
    const auto [row, column] = divide(i, width);
    float sums[Unit::kCount] = {};
    for (std::size_t f = 0; f < a.fields; ++f) {
      const std::size_t from = a.places[row * a.fields + f] * width + column;
      const Unit values = read_unit(static_cast<const Unit*>(a.w) + from);
      for (std::size_t k = 0; k < Unit::kCount; ++k) {
        sums[k] = f == 0 ? wide(values.values[k]) : sums[k] + wide(values.values[k]);
      }
    }
    Unit to;
    for (std::size_t k = 0; k < Unit::kCount; ++k) to.values[k] = narrow<T>(sums[k]);
    static_cast<Unit*>(a.y)[i] = to;
  }
}

template <class T>
__device__ void run(const EmbeddingForward& a) {
  using One = Access<T, 1>;
  const bool wide_units = wide_accesses(a.w, a.y, a.columns * sizeof(T));
  if (a.sum) {
    wide_units ? sum_picked_rows<WideAccess<T>, T>(a) : sum_picked_rows<One, T>(a);
  } else {
    wide_units ? copy_picked_rows<WideAccess<T>, T>(a) : copy_picked_rows<One, T>(a);
  }
}

// Returns a mask whose bit l is the value of lane l, in all lanes.
__device__ inline std::uint32_t mask_of_warp(bool value) {
  std::uint32_t mask = value ? std::uint32_t(1) << lane() : 0;
  for (unsigned other = kWarp / 2; other > 0; other /= 2) mask |= shuffle_xor(mask, other);
  return mask;
}

// Sums the gradients of the row of `pick`. In each round, all threads examine threads() picks, one
// each, and set a bit in `matches` for each pick of the same row. Each thread then adds the
// gradients of these picks in order, in its own column. A match before `pick` ends the call, since
// that pick adds this row. Two sets of matches alternate, so one barrier per round suffices;
// `round` keeps counting from pick to pick.
template <class T>
__device__ void add_row_of_pick(const EmbeddingBackward& a, std::size_t picks, std::size_t pick,
                                std::size_t first_column, unsigned& round) {
  constexpr unsigned kMostWarps = 32;
  std::uint32_t* const both = shared<std::uint32_t, 2 * kMostWarps>();
  const std::uint32_t place = a.places[pick];
  const std::size_t column = first_column + thread();
  const bool mine = column < a.columns;
  T* const to = static_cast<T*>(a.dw) + place * a.columns + column;
  float sum = mine && a.accumulate ? wide(*to) : 0;
  for (std::size_t first = 0; first < picks; first += threads()) {
    std::uint32_t* const matches = both + (round++ % 2) * kMostWarps;
    const std::size_t seen = first + thread();
    const std::uint32_t mask = mask_of_warp(seen < picks && a.places[seen] == place);
    if (lane() == 0) matches[thread() / kWarp] = mask;
    barrier();
    for (unsigned warp = 0; warp < threads() / kWarp; ++warp) {
      for (std::uint32_t left = matches[warp]; left != 0; left &= left - 1) {
        const std::size_t match = first + warp * kWarp + lowest_bit(left);
        if (match < pick) return;
        const std::size_t from = a.sum ? divide(match, a.fields).quotient : match;
        if (mine) sum += wide(static_cast<const T*>(a.dy)[from * a.columns + column]);
      }
    }
  }
  if (mine) *to = narrow<T>(sum);
}

template <class T>
__device__ void run(const EmbeddingBackward& a) {
  const std::size_t picks = std::size_t(a.state->examples) * a.fields;
  unsigned round = 0;
  for (std::size_t tile = block_row(); tile * threads() < a.columns; tile += block_rows()) {
    for (std::size_t pick = block(); pick < picks; pick += blocks()) {
      add_row_of_pick<T>(a, picks, pick, tile * threads(), round);
    }
  }
}

}  // namespace lockstep::engine::cuda
