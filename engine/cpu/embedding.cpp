// SPDX-License-Identifier: MIT
#include "engine/cpu/embedding.h"

#include <algorithm>

#include "engine/cpu/loops.h"
#include "engine/cpu/share_rows.h"

namespace lockstep::engine::cpu {

void embedding_forward(int threads, const EmbeddingSpec& spec, std::size_t rows,
                       const std::uint32_t* places, const float* w, float* y) {
  const std::size_t fields = spec.fields, columns = spec.columns;
  share_rows(threads, rows, [&](int, std::size_t first, std::size_t count) {
    for (std::size_t r = first; r < first + count; ++r) {
      float* to = y + r * spec.outputs();
      for (std::size_t f = 0; f < fields; ++f) {
        const float* from = w + places[r * fields + f] * columns;
        if (!spec.sum) {
          std::copy_n(from, columns, to + f * columns);
        } else if (f == 0) {
          std::copy_n(from, columns, to);
        } else {
          add(to, from, to, columns);
        }
      }
    }
  });
}

void embedding_backward(int threads, const EmbeddingSpec& spec, std::size_t rows,
                        const std::uint32_t* places, const float* dy, std::size_t table_rows,
                        float* dw, bool accumulate) {
  const std::size_t fields = spec.fields, columns = spec.columns;
  if (!accumulate) {
    share_rows(threads, table_rows, [&](int, std::size_t first, std::size_t count) {
      std::fill_n(dw + first * columns, count * columns, 0.0f);
    });
  }
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t f = 0; f < fields; ++f) {
      float* to = dw + places[r * fields + f] * columns;
      add(to, dy + r * spec.outputs() + (spec.sum ? 0 : f * columns), to, columns);
    }
  }
}

}  // namespace lockstep::engine::cpu
