// SPDX-License-Identifier: MIT
// Kernels that move whole columns and read ids, for devices whose memory is the host's.
#include <cstring>
#include <vector>

#include "engine/base/error.h"
#include "engine/ops/checks.h"
#include "engine/ops/ops.h"

namespace lockstep::engine {
namespace {

// T(-0.5) and what is no number are no ids; nothing is converted before it is known to fit.
template <class T>
void find_rows(const StepState& state, const RowSource& source, const Tensor& x,
               std::string_view layer, std::uint32_t* places) {
  const std::size_t columns = x.columns();
  for (std::size_t r = 0; r < std::size_t(state.examples); ++r) {
    const T* ids = x.as<T>() + r * columns + source.first;
    for (std::size_t f = 0; f < source.fields; ++f) {
      const bool inside = ids[f] >= 0 && double(ids[f]) < double(source.rows);
      const std::size_t id = inside ? std::size_t(ids[f]) : 0;
      if (!inside || T(id) != ids[f]) {
        fail(Code::kInvalid,
             "layer {}: example {}: field {} (column {} of its input) is {}, which is no id; ids "
             "are whole numbers from 0 to {}",
             layer, state.ids == nullptr ? std::int64_t(r) : state.ids[r], f, source.first + f,
             ids[f], source.rows - 1);
      }
      places[r * source.fields + f] = std::uint32_t(f * source.rows + id);
    }
  }
}

}  // namespace

void Ops::copy_columns(const StepState* state, Tensor x, std::size_t from, Tensor y, std::size_t to,
                       std::size_t count) {
  const std::size_t rows = rows_in_use(state, {x, y}), size = size_of(x.dtype);
  invariant(x.dtype == y.dtype, "copy of columns: two element types");
  if (rows == 0) return;
  invariant(from + count <= x.columns() && to + count <= y.columns(), "columns that are not there");
  for (std::size_t r = 0; r < rows; ++r) {
    std::memcpy(y.data + (r * y.columns() + to) * size, x.data + (r * x.columns() + from) * size,
                count * size);
  }
}

void Ops::clear(const StepState* state, Tensor y) {
  const std::size_t bytes = rows_in_use(state, {y}) * y.columns() * size_of(y.dtype);
  if (bytes > 0) std::memset(y.data, 0, bytes);
}

void Ops::embedding_rows(const StepState* state, const RowSource& source, Tensor x,
                         std::string_view layer, std::uint32_t* places) {
  if (rows_in_use(state, {x}) == 0) return;
  invariant(source.rows > 0 && source.rows <= RowSource::kMostRows,
            "ids that cannot be told apart");
  invariant(source.fields <= 0xffffffff / source.rows, "a table of more rows than 32 bits count");
  invariant(source.first + source.fields <= x.columns(), "ids in columns that are not there");
  if (x.dtype == DType::kFloat32) return find_rows<float>(*state, source, x, layer, places);
  if (x.dtype == DType::kFloat64) return find_rows<double>(*state, source, x, layer, places);
  invariant(size_of(x.dtype) == 2, "ids that are integers");
  constexpr std::size_t kMostIds = 256;  // whole numbers so far are there in both types of 16 bits
  require(source.rows <= kMostIds,
          "layer {}: ids of {} rows cannot be told apart in {}, which counts to {}; train this "
          "model in float32",
          layer, source.rows, name(x.dtype), kMostIds);
  std::vector<float> ids(std::size_t(state->examples) * x.columns());
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = float(number_at(x.data, x.dtype, i));
  const Tensor wide{reinterpret_cast<std::byte*>(ids.data()), x.shape, DType::kFloat32};
  find_rows<float>(*state, source, wide, layer, places);
}

}  // namespace lockstep::engine
