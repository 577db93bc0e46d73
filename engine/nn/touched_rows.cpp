// SPDX-License-Identifier: MIT
#include "engine/nn/touched_rows.h"

#include <algorithm>

#include "engine/base/error.h"

namespace lockstep::engine {

std::size_t TouchedRows::bytes(const RowSource& source, std::size_t examples) {
  const std::size_t ids = examples * source.fields;
  return (ids + examples) * sizeof(std::uint64_t) + ids * sizeof(std::uint32_t);
}

TouchedRows::TouchedRows(const RowSource& source, std::size_t examples, std::byte* memory)
    : source_(source),
      rows_(reinterpret_cast<std::uint64_t*>(memory)),
      keys_(rows_ + examples * source.fields),
      places_(reinterpret_cast<std::uint32_t*>(keys_ + examples)) {
  invariant(examples <= 0xffffffff, "a batch of more examples than 32 bits count");
}

// At first all places name rows of the table. Rows of a field are behind those of the field before,
// so sorting each field by itself leaves all of them ascending.
void TouchedRows::find(const StepState& state, Ops& ops, Tensor input, std::string_view layer) {
  count_ = 0;
  ops.embedding_rows(&state, source_, input, layer, places_);
  const std::size_t examples = std::size_t(state.examples), fields = source_.fields;
  for (std::size_t f = 0; f < fields; ++f) {
    for (std::size_t e = 0; e < examples; ++e) {
      keys_[e] = std::uint64_t(places_[e * fields + f]) << 32 | e;
    }
    std::sort(keys_, keys_ + examples);
    const std::size_t before = count_;
    for (std::size_t i = 0; i < examples; ++i) {
      const std::uint64_t row = keys_[i] >> 32, e = keys_[i] & 0xffffffff;
      if (count_ == before || rows_[count_ - 1] != row) rows_[count_++] = row;
      places_[e * fields + f] = std::uint32_t(count_ - 1);
    }
  }
}

}  // namespace lockstep::engine
