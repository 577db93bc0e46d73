// SPDX-License-Identifier: MIT
// Kernels that copy columns and read ids, for devices that use host memory.
#include <cstring>
#include <vector>

#include "engine/base/error.h"
#include "engine/ops/checks.h"
#include "engine/ops/definitions.h"
#include "engine/ops/ops.h"

namespace lockstep::engine {
namespace {

// T(-0.5) and NaN are not ids. A number is converted only after it is known to fit.
template <class T>
void find_rows(const StepState& state, const RowSource& source, const Tensor& x,
               std::string_view layer, std::uint32_t* places) {
  const std::size_t columns = x.columns();
  for (std::size_t r = 0; r < std::size_t(state.examples); ++r) {
    const T* ids = x.as<T>() + r * columns + source.first;
    for (std::size_t f = 0; f < source.fields; ++f) {
      if (!is_index(ids[f], source.rows)) {
        fail(Code::kInvalid,
             "layer {}: example {}: field {} (column {} of its input) is {}, which is no id; ids "
             "are whole numbers from 0 to {}",
             layer, state.ids == nullptr ? std::int64_t(r) : state.ids[r], f, source.first + f,
             ids[f], source.rows - 1);
      }
      places[r * source.fields + f] = std::uint32_t(f * source.rows + std::size_t(ids[f]));
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
  check_ids(source, x, layer);
  if (x.dtype == DType::kFloat32) return find_rows<float>(*state, source, x, layer, places);
  if (x.dtype == DType::kFloat64) return find_rows<double>(*state, source, x, layer, places);
  std::vector<float> ids(std::size_t(state->examples) * x.columns());
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = float(number_at(x.data, x.dtype, i));
  const Tensor wide{reinterpret_cast<std::byte*>(ids.data()), x.shape, DType::kFloat32};
  find_rows<float>(*state, source, wide, layer, places);
}

}  // namespace lockstep::engine
