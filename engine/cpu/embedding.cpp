// SPDX-License-Identifier: MIT
#include "engine/cpu/embedding.h"

#include <algorithm>
#include <array>

#include "engine/cpu/bfloat16_loops.h"
#include "engine/cpu/loops.h"
#include "engine/cpu/share_rows.h"

namespace lockstep::engine::cpu {
namespace {

constexpr std::size_t kColumnStrip = 256;  // columns that are summed at a time

// Stores the sum of the rows that an example selects in `to`.
void sum_table_rows(const EmbeddingSpec& spec, const std::uint32_t* places, const float* w,
                    float* to) {
  std::copy_n(w + places[0] * spec.columns, spec.columns, to);
  for (std::size_t f = 1; f < spec.fields; ++f) {
    add(to, w + places[f] * spec.columns, to, spec.columns);
  }
}

void sum_table_rows(const EmbeddingSpec& spec, const std::uint32_t* places, const BFloat16* w,
                    BFloat16* to) {
  std::array<float, kColumnStrip> sums, row;
  for (std::size_t c = 0; c < spec.columns; c += kColumnStrip) {
    const std::size_t count = std::min(kColumnStrip, spec.columns - c);
    widen(w + places[0] * spec.columns + c, sums.data(), count);
    for (std::size_t f = 1; f < spec.fields; ++f) {
      widen(w + places[f] * spec.columns + c, row.data(), count);
      add(sums.data(), row.data(), sums.data(), count);
    }
    narrow(sums.data(), to + c, count);
  }
}

// Adds the gradients of the examples to the rows that they selected.
void add_gradients(Library&, const EmbeddingSpec& spec, std::size_t rows,
                   const std::uint32_t* places, const float* dy, float* dw) {
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t f = 0; f < spec.fields; ++f) {
      float* to = dw + places[r * spec.fields + f] * spec.columns;
      add(to, dy + r * spec.outputs() + (spec.sum ? 0 : f * spec.columns), to, spec.columns);
    }
  }
}

// Adds all gradients of one row of the table consecutively, then rounds.
void add_gradients(Library& library, const EmbeddingSpec& spec, std::size_t rows,
                   const std::uint32_t* places, const BFloat16* dy, BFloat16* dw) {
  const std::size_t picks = rows * spec.fields;
  auto* const order =
      reinterpret_cast<std::uint32_t*>(library.scratch(picks * sizeof(std::uint32_t)));
  for (std::size_t i = 0; i < picks; ++i) order[i] = std::uint32_t(i);
  std::sort(order, order + picks, [&](std::uint32_t a, std::uint32_t b) {
    return places[a] != places[b] ? places[a] < places[b] : a < b;
  });
  std::array<float, kColumnStrip> sums, row;
  for (std::size_t first = 0, end = 0; first < picks; first = end) {
    const std::uint32_t place = places[order[first]];
    while (end < picks && places[order[end]] == place) ++end;
    for (std::size_t c = 0; c < spec.columns; c += kColumnStrip) {
      const std::size_t count = std::min(kColumnStrip, spec.columns - c);
      BFloat16* const to = dw + place * spec.columns + c;
      widen(to, sums.data(), count);
      for (std::size_t i = first; i < end; ++i) {
        const std::size_t example = order[i] / spec.fields, f = order[i] % spec.fields;
        widen(dy + example * spec.outputs() + (spec.sum ? 0 : f * spec.columns) + c, row.data(),
              count);
        add(sums.data(), row.data(), sums.data(), count);
      }
      narrow(sums.data(), to, count);
    }
  }
}

}  // namespace

template <class T>
void embedding_forward(int threads, const EmbeddingSpec& spec, std::size_t rows,
                       const std::uint32_t* places, const T* w, T* y) {
  const std::size_t fields = spec.fields, columns = spec.columns;
  share_rows(threads, rows, [&](int, std::size_t first, std::size_t count) {
    for (std::size_t r = first; r < first + count; ++r) {
      T* to = y + r * spec.outputs();
      if (spec.sum) {
        sum_table_rows(spec, places + r * fields, w, to);
        continue;
      }
      for (std::size_t f = 0; f < fields; ++f) {
        std::copy_n(w + places[r * fields + f] * columns, columns, to + f * columns);
      }
    }
  });
}

template <class T>
void embedding_backward(Library& library, const EmbeddingSpec& spec, std::size_t rows,
                        const std::uint32_t* places, const T* dy, std::size_t table_rows, T* dw,
                        bool accumulate) {
  const std::size_t columns = spec.columns;
  if (!accumulate) {
    share_rows(library.threads(), table_rows, [&](int, std::size_t first, std::size_t count) {
      std::fill_n(dw + first * columns, count * columns, T());
    });
  }
  add_gradients(library, spec, rows, places, dy, dw);
}

template void embedding_forward(int, const EmbeddingSpec&, std::size_t, const std::uint32_t*,
                                const float*, float*);
template void embedding_forward(int, const EmbeddingSpec&, std::size_t, const std::uint32_t*,
                                const BFloat16*, BFloat16*);
template void embedding_backward(Library&, const EmbeddingSpec&, std::size_t, const std::uint32_t*,
                                 const float*, std::size_t, float*, bool);
template void embedding_backward(Library&, const EmbeddingSpec&, std::size_t, const std::uint32_t*,
                                 const BFloat16*, std::size_t, BFloat16*, bool);

}  // namespace lockstep::engine::cpu
