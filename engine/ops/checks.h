// SPDX-License-Identifier: MIT
// Checks that every device applies to its operands before a kernel runs. Wrong shapes are defects
// of the caller and stop the program. Nothing is allocated. Thread-safe.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <string_view>

#include "engine/ops/ops.h"

namespace lockstep::engine {

// Returns the rows in use. Checks that every batch that is present has at least as many.
std::size_t rows_in_use(const StepState* state, std::initializer_list<Tensor> batches);

// Checks that `tensor`, if present, has `dtype` and `columns` elements per row.
void check_batch(const Tensor& tensor, DType dtype, std::size_t columns, std::string_view what);

// Checks that `tensor`, if present, has `dtype` and `elements` elements.
void check_parameter(const Tensor& tensor, DType dtype, std::size_t elements,
                     std::string_view what);

// Checks that extents, strides and paddings give at least one output, and that each window of a
// pool overlaps the image.
void check_spec(const ConvolutionSpec& spec);
void check_spec(const PoolSpec& spec);

// Checks that the ids that `source` selects lie in x. Throws Error(kInvalid), which names the
// layer, if x's element type cannot distinguish all of them.
void check_ids(const RowSource& source, const Tensor& x, std::string_view layer);

// Checks that `places` name rows of the table w for the rows in use, and that w consists of whole
// rows of spec.columns. Returns the number of rows of the table.
std::size_t check_places(const EmbeddingSpec& spec, std::size_t rows, const std::uint32_t* places,
                         const Tensor& w);

// Checks the types and sizes of a batch norm's operands, and that a mask is present if needed.
void check_call(const BatchNormSpec& spec, DType dtype, const BatchNormForward& call);
void check_call(const BatchNormSpec& spec, DType dtype, const BatchNormBackward& call);

// Checks that there is at least one source and that the epilogue's operands are present. kSquares
// takes at most `most` elements.
void check_reduce(const ReduceArguments& arguments, std::size_t most = kBlock);

// Returns the class that a row's target names. Labels come from files: throws Error(kInvalid),
// which names the example (its id, or the row if `ids` is null), if the number is not one of 0 ..
// classes - 1.
std::size_t class_of(float target, std::size_t classes, std::size_t row, const std::int64_t* ids);

}  // namespace lockstep::engine
