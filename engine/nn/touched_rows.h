// SPDX-License-Identifier: MIT
// The rows of a table that a batch touches, ascending, each once, and for each id the index of its
// row among them. Works in memory of the graph and allocates nothing. A batch of n examples costs,
// for each field, sorting n numbers. Used by the replica's computing thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/ops/ops.h"

namespace lockstep::engine {

class TouchedRows {
 public:
  // Returns the memory needed for batches of at most `examples` examples.
  static std::size_t bytes(const RowSource& source, std::size_t examples);
  // `memory` has that many bytes, is aligned to 8, and must outlive this.
  TouchedRows(const RowSource& source, std::size_t examples, std::byte* memory);

  // Finds the rows of the ids of input [.., columns]. Throws Error(kInvalid) that names `layer` for
  // an invalid id.
  void find(const StepState& state, Ops& ops, Tensor input, std::string_view layer);
  std::span<const std::uint64_t> rows() const { return {rows_, count_}; }
  // Returns [examples, fields]: rows()[place] is the row that the id picks. The address never
  // changes.
  const std::uint32_t* places() const { return places_; }

 private:
  RowSource source_;
  std::size_t count_ = 0;
  std::uint64_t* rows_;
  std::uint64_t* keys_;  // one field's rows and examples, for sorting
  std::uint32_t* places_;
};

}  // namespace lockstep::engine
