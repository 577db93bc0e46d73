// SPDX-License-Identifier: MIT
// What every device asks of its operands before a kernel runs. Wrong shapes are defects of the
// caller and stop the program; nothing is allocated. Any thread.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <string_view>

#include "engine/ops/ops.h"

namespace lockstep::engine {

// The rows that count, after a look whether all these batches (absent ones aside) have so many.
std::size_t rows_in_use(const StepState* state, std::initializer_list<Tensor> batches);

// `tensor`, where present, is of `dtype` and holds `columns` elements in each of its rows.
void check_batch(const Tensor& tensor, DType dtype, std::size_t columns, std::string_view what);

// `tensor`, where present, is of `dtype` and holds `elements` elements.
void check_parameter(const Tensor& tensor, DType dtype, std::size_t elements,
                     std::string_view what);

// Extents, strides and paddings that give at least one output; each window of a pool meets the
// image.
void check_spec(const ConvolutionSpec& spec);
void check_spec(const PoolSpec& spec);

// Ids that `source` picks lie in x, of the element type that x has. Throws Error(kInvalid), which
// names the layer, where that does not tell all of them apart.
void check_ids(const RowSource& source, const Tensor& x, std::string_view layer);

// Places of rows that a table has, for the rows in use; w is whole rows of spec.columns. Returns
// how many rows.
std::size_t check_places(const EmbeddingSpec& spec, std::size_t rows, const std::uint32_t* places,
                         const Tensor& w);

// The operands of a batch norm are of `dtype` and of its sizes; a mask is there where it is needed.
void check_call(const BatchNormSpec& spec, DType dtype, const BatchNormForward& call);
void check_call(const BatchNormSpec& spec, DType dtype, const BatchNormBackward& call);

// At least one source, and what the epilogue needs is there. Squares are of `most` elements.
void check_reduce(const ReduceArguments& arguments, std::size_t most = kBlock);

// The class that a row's target names. Throws Error(kInvalid), which names the example (of `ids`,
// by row; the row where that is null), where the number is not one of 0 .. classes - 1: labels come
// from files.
std::size_t class_of(float target, std::size_t classes, std::size_t row, const std::int64_t* ids);

}  // namespace lockstep::engine
