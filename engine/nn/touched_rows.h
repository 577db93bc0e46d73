// SPDX-License-Identifier: MIT
// Which rows of a table a batch touches: ascending, each once; and for each id the number of its
// row among them. Works in memory that the graph owns, and allocates nothing. A batch of n examples
// costs, for each field, sorting n numbers. The replica's computing thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/ops/ops.h"

namespace lockstep::engine {

class TouchedRows {
 public:
  // Of the memory for batches of at most so many examples.
  static std::size_t bytes(const RowSource& source, std::size_t examples);
  // `memory`: of so many bytes, aligned to 8; outlives this.
  TouchedRows(const RowSource& source, std::size_t examples, std::byte* memory);

  // Ids of input [.., columns]. Throws Error(kInvalid) that names `layer` where one is none.
  void find(const StepState& state, Ops& ops, Tensor input, std::string_view layer);
  std::span<const std::uint64_t> rows() const { return {rows_, count_}; }
  // [examples, fields]: rows()[place] is the row that the id picks. Always at the same address.
  const std::uint32_t* places() const { return places_; }

 private:
  RowSource source_;
  std::size_t count_ = 0;
  std::uint64_t* rows_;
  std::uint64_t* keys_;  // of one field: row and example in one number, to be sorted
  std::uint32_t* places_;
};

}  // namespace lockstep::engine
