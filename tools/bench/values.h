// SPDX-License-Identifier: MIT
// Input of a benchmark of collectives: small whole numbers that differ by rank, round and place.
// Every sum is exact in every dtype and order, and a number from a wrong place shows. Products use
// 1 and 2 with either sign. The numbers repeat after a prime number of elements, of which no block
// or slice is a multiple. At most 256 ranks; many ranks leave only few different numbers in 16
// bits. Writing and comparing run at the speed of memory. Create one for a dtype and operation; one
// thread.
#pragma once
#include <cstddef>
#include <vector>

#include "engine/ops/reduce.h"

namespace lockstep::tools::bench {

class Values {
 public:
  // Prepares the values. `mean`: the result is the sum times 1 / ranks, in 16-bit types with both
  // factors as float32.
  Values(engine::DType dtype, engine::ReduceOp op, bool mean, int ranks);

  // Writes elements [first, first + count) of this rank's input of a round to `data`.
  void write(std::byte* data, std::size_t first, std::size_t count, int rank, int round);
  // Returns how many of the elements [first, first + count) of a result are wrong.
  std::size_t wrong(const std::byte* data, std::size_t first, std::size_t count, int round);
  // Returns how many of the elements differ from those that `rank` wrote.
  std::size_t wrong_copies(const std::byte* data, std::size_t first, std::size_t count, int rank,
                           int round);

 private:
  // Returns how many elements differ from the table.
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
  std::size_t different_;  // distinct inputs of a sum
  std::vector<std::byte> table_;
};

}  // namespace lockstep::tools::bench
