// SPDX-License-Identifier: MIT
// Highway does not support this instruction yet, so these loops are written for AVX-512 only. As in
// the float32 kernels, a tile of rows and of one panel stays in registers while its products are
// summed.
#include "engine/cpu/pair_products.h"

#include <immintrin.h>

namespace lockstep::engine::cpu {
namespace {

constexpr std::size_t kLanes = 16;

// Returns the vectors of the panel that begins where so many columns are left.
std::size_t panel_vectors(std::size_t columns) {
  const std::size_t vectors = columns / kLanes;
  return vectors >= 4 ? 4 : vectors >= 2 ? 2 : 1;
}

// Computes R rows of c and V vectors of columns at a time.
template <std::size_t R, std::size_t V>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")]] void multiply_panel(
    const std::uint32_t* a, const std::uint32_t* panel, std::size_t rows, std::size_t pairs,
    float* c, std::size_t stride) {
  for (std::size_t r = 0; r < rows; r += R) {
    __m512 sums[R][V];
#pragma GCC unroll 12
    for (std::size_t i = 0; i < R; ++i) {
#pragma GCC unroll 4
      for (std::size_t j = 0; j < V; ++j) sums[i][j] = _mm512_setzero_ps();
    }
    const std::uint32_t* row = a + r * pairs;
    for (std::size_t k = 0; k < pairs; ++k) {
      __m512bh b[V];
#pragma GCC unroll 4
      for (std::size_t j = 0; j < V; ++j) {
        b[j] = __m512bh(_mm512_loadu_si512(panel + (k * V + j) * kLanes));
      }
#pragma GCC unroll 12
      for (std::size_t i = 0; i < R; ++i) {
        const __m512bh factor = __m512bh(_mm512_set1_epi32(int(row[i * pairs + k])));
#pragma GCC unroll 4
        for (std::size_t j = 0; j < V; ++j) sums[i][j] = _mm512_dpbf16_ps(sums[i][j], factor, b[j]);
      }
    }
#pragma GCC unroll 12
    for (std::size_t i = 0; i < R; ++i) {
#pragma GCC unroll 4
      for (std::size_t j = 0; j < V; ++j) {
        _mm512_storeu_ps(c + (r + i) * stride + j * kLanes, sums[i][j]);
      }
    }
  }
}

// Adds to K rows of a panel of the sums.
template <std::size_t K, std::size_t V>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")]] void add_rows(
    const std::uint32_t* a, std::size_t rows, const std::uint32_t* b, std::size_t columns,
    std::size_t pairs, bool fresh, float* sums) {
  __m512 total[K][V];
#pragma GCC unroll 8
  for (std::size_t i = 0; i < K; ++i) {
#pragma GCC unroll 4
    for (std::size_t j = 0; j < V; ++j) {
      total[i][j] = fresh ? _mm512_setzero_ps() : _mm512_loadu_ps(sums + (i * V + j) * kLanes);
    }
  }
  for (std::size_t k = 0; k < pairs; ++k) {
    __m512bh right[V];
#pragma GCC unroll 4
    for (std::size_t j = 0; j < V; ++j) {
      right[j] = __m512bh(_mm512_loadu_si512(b + k * columns + j * kLanes));
    }
#pragma GCC unroll 8
    for (std::size_t i = 0; i < K; ++i) {
      const __m512bh factor = __m512bh(_mm512_set1_epi32(int(a[k * rows + i])));
#pragma GCC unroll 4
      for (std::size_t j = 0; j < V; ++j) {
        total[i][j] = _mm512_dpbf16_ps(total[i][j], factor, right[j]);
      }
    }
  }
#pragma GCC unroll 8
  for (std::size_t i = 0; i < K; ++i) {
#pragma GCC unroll 4
    for (std::size_t j = 0; j < V; ++j) _mm512_storeu_ps(sums + (i * V + j) * kLanes, total[i][j]);
  }
}

template <std::size_t K, std::size_t V>
void add_panel(const std::uint32_t* a, std::size_t rows, const std::uint32_t* b,
               std::size_t columns, std::size_t pairs, bool fresh, float* sums) {
  for (std::size_t r = 0; r < rows; r += K) {
    add_rows<K, V>(a + r, rows, b, columns, pairs, fresh, sums + r * V * kLanes);
  }
}

}  // namespace

bool has_pair_products() {
  static const bool here = __builtin_cpu_supports("avx512bf16") &&
                           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  return here;
}

[[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")]] void pack_pairs(const float* second,
                                                                        std::uint32_t* words,
                                                                        std::size_t stride,
                                                                        std::uint32_t* rows,
                                                                        std::size_t row) {
  // The order merges 16 numbers and the 16 after them to pairs.
  alignas(64) static constexpr std::uint16_t kPairs[32] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i order = _mm512_load_si512(kPairs);
#pragma GCC unroll 6
  for (std::size_t j = 0; j < 6; ++j) {
    std::uint32_t* const to = words + j * stride;
    const __m512 a = _mm512_loadu_ps(to), b = _mm512_loadu_ps(second + j * kLanes);
    const __m512i both = __m512i(_mm512_cvtne2ps_pbh(b, a));
    _mm512_storeu_si512(to, _mm512_maskz_permutexvar_epi16(~0u, order, both));
    if (rows == nullptr) continue;
    auto* const of_a = reinterpret_cast<__m256i*>(rows + j * stride);
    auto* const of_b = reinterpret_cast<__m256i*>(rows + j * stride + row);
    _mm256_storeu_si256(of_a, __m256i(_mm512_cvtneps_pbh(a)));
    _mm256_storeu_si256(of_b, __m256i(_mm512_cvtneps_pbh(b)));
  }
}

void multiply_pairs(const std::uint32_t* a, const std::uint32_t* b, std::size_t rows,
                    std::size_t pairs, std::size_t columns, float* c) {
  const std::size_t six = (rows + 5) / 6 * 6, twelve = (rows + 11) / 12 * 12;
  for (std::size_t column = 0; column < columns;) {
    const std::size_t vectors = panel_vectors(columns - column);
    const std::uint32_t* panel = b + column * pairs;
    if (vectors == 4) {
      multiply_panel<6, 4>(a, panel, six, pairs, c + column, columns);
    } else if (vectors == 2) {
      multiply_panel<12, 2>(a, panel, twelve, pairs, c + column, columns);
    } else {
      multiply_panel<12, 1>(a, panel, twelve, pairs, c + column, columns);
    }
    column += vectors * kLanes;
  }
}

void add_pairs(const std::uint32_t* a, const std::uint32_t* b, std::size_t pairs, std::size_t rows,
               std::size_t columns, bool fresh, float* sums) {
  for (std::size_t column = 0; column < columns;) {
    const std::size_t vectors = panel_vectors(columns - column);
    float* panel = sums + column * rows;
    if (vectors == 4) {
      add_panel<4, 4>(a, rows, b + column, columns, pairs, fresh, panel);
    } else if (vectors == 2) {
      add_panel<8, 2>(a, rows, b + column, columns, pairs, fresh, panel);
    } else {
      add_panel<8, 1>(a, rows, b + column, columns, pairs, fresh, panel);
    }
    column += vectors * kLanes;
  }
}

}  // namespace lockstep::engine::cpu
