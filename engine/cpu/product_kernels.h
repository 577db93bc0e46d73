// SPDX-License-Identifier: MIT
// An own kernel for products of matrices whose right factor or result is too large for the caches,
// as the gradients of wide dense layers are: c = a b, or c += a b, row-major float32. Compiled for
// each instruction set and chosen as the program runs. Pure functions; any thread; several threads
// share one product by columns, and its bits do not depend on how. Source: Goto and van de Geijn,
// Anatomy of High-Performance Matrix Multiplication (2008).
#pragma once
#include <cstddef>

namespace lockstep::engine::cpu {

struct Product {
  std::size_t rows = 0, depth = 0, columns = 0;
  const float* a =
      nullptr;  // [rows, depth]; where `turned`: [depth, rows], and its transpose counts
  bool turned = false;
  const float* b = nullptr;  // [depth, columns]
  float* c = nullptr;        // [rows, columns]; meets neither a nor b
  bool add = false;          // to what c holds

  static constexpr std::size_t kStrip = 6;    // rows of a that are multiplied at once
  static constexpr std::size_t kDepth = 256;  // products that are summed before c is touched
  static constexpr std::size_t kGroup = 64;   // columns: the unit in which threads share them

  std::size_t strips() const { return (rows + kStrip - 1) / kStrip; }
  std::size_t groups() const { return (columns + kGroup - 1) / kGroup; }
  std::size_t packed() const { return strips() * kStrip * depth; }  // floats: a in strips
  static constexpr std::size_t panel() { return kDepth * kGroup; }  // floats, of each thread
};

// Strips [first, first + count) of a, as `multiply` reads them.
void pack(const Product& product, std::size_t first, std::size_t count, float* packed);

// Groups [first, first + count) of the columns of c. `packed`: all strips; `panel`: this thread's;
// both aligned to 64 bytes.
void multiply(const Product& product, const float* packed, std::size_t first, std::size_t count,
              float* panel);

}  // namespace lockstep::engine::cpu
