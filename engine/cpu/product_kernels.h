// SPDX-License-Identifier: MIT
// An own kernel for matrix products whose right factor or result exceeds the caches, such as the
// gradients of wide dense layers: c = a b, or c += a b, in row-major float32. Several threads share
// one product by columns; its bits do not depend on the division. Compiled for each instruction set
// and chosen at run time. Pure functions; thread-safe. Source: Goto and van de Geijn, Anatomy of
// High-Performance Matrix Multiplication (2008).
#pragma once
#include <cstddef>

namespace lockstep::engine::cpu {

struct Product {
  std::size_t rows = 0, depth = 0, columns = 0;
  const float* a = nullptr;  // [rows, depth], or [depth, rows] if `turned`
  bool turned = false;
  const float* b = nullptr;  // [depth, columns]
  float* c = nullptr;        // [rows, columns]; disjoint from a and b
  bool add = false;          // c += a b

  static constexpr std::size_t kStrip = 6;    // rows of a multiplied at once
  static constexpr std::size_t kDepth = 256;  // products summed before c is accessed
  static constexpr std::size_t kGroup = 64;   // columns: the unit of division among threads

  std::size_t strips() const { return (rows + kStrip - 1) / kStrip; }
  std::size_t groups() const { return (columns + kGroup - 1) / kGroup; }
  std::size_t packed() const { return strips() * kStrip * depth; }  // floats: a in strips
  static constexpr std::size_t panel() { return kDepth * kGroup; }  // floats per thread
};

// Writes strips [first, first + count) of a in the layout that `multiply` reads.
void pack(const Product& product, std::size_t first, std::size_t count, float* packed);

// Computes groups [first, first + count) of the columns of c. `packed`: all strips; `panel`: this
// thread's. Both are aligned to 64 bytes.
void multiply(const Product& product, const float* packed, std::size_t first, std::size_t count,
              float* panel);

}  // namespace lockstep::engine::cpu
