// SPDX-License-Identifier: MIT
// What a benchmark of collectives reduces: small whole numbers that differ by rank, round and
// place, so that every sum is exact in every type and order, and a number from a wrong place shows;
// for products 1 and 2 with either sign. They repeat after a prime number of elements, which no
// block or slice is a multiple of. Up to 256 ranks, of which many leave only few different numbers
// in 16 bits. Writing and comparing run at the speed of memory. Made once for a type and operation;
// one thread.
#pragma once
#include <cstddef>
#include <vector>

#include "engine/ops/reduce.h"

namespace lockstep::tools::bench {

class Values {
 public:
  // `mean`: the sum times 1 / ranks, in 16 bits both as float32.
  Values(engine::DType dtype, engine::ReduceOp op, bool mean, int ranks);

  // Elements [first, first + count) of this rank's input of a round, to `data`.
  void write(std::byte* data, std::size_t first, std::size_t count, int rank, int round);
  // Reads elements [first, first + count) of a result; how many are not what they should be.
  std::size_t wrong(const std::byte* data, std::size_t first, std::size_t count, int round);
  // The same where they should be as that rank wrote them.
  std::size_t wrong_copies(const std::byte* data, std::size_t first, std::size_t count, int rank,
                           int round);

 private:
  // Of those that differ from the table.
  std::size_t different(const std::byte* data, std::size_t first, std::size_t count) const;
  double input(std::size_t place, int rank, int round) const;
  double result(std::size_t place, int round) const;
  // Fills the table with one period after the other.
  template <class Number>
  void fill(const Number& number);

  engine::DType dtype_;
  engine::ReduceOp op_;
  bool mean_;
  int ranks_;
  std::size_t different_;  // numbers among the inputs of a sum
  std::vector<std::byte> table_;
};

}  // namespace lockstep::tools::bench
