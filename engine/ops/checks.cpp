// SPDX-License-Identifier: MIT
#include "engine/ops/checks.h"

#include "engine/base/error.h"
#include "engine/ops/definitions.h"

namespace lockstep::engine {
namespace {

template <class Spec>
void check_windows(const Spec& spec) {
  invariant(spec.stride > 0, "a stride of 0");
  invariant(spec.kernel_height > 0 && spec.kernel_width > 0, "a window without elements");
  invariant(spec.height + 2 * spec.padding >= spec.kernel_height &&
                spec.width + 2 * spec.padding >= spec.kernel_width,
            "a window larger than its padded image");
}

}  // namespace

std::size_t rows_in_use(const StepState* state, std::initializer_list<Tensor> batches) {
  invariant(state->examples >= 0, "a negative number of rows");
  const std::size_t rows = std::size_t(state->examples);
  for (const Tensor& batch : batches) {
    invariant(!batch || batch.rows() >= rows, "more rows in use than were planned");
  }
  return rows;
}

void check_batch(const Tensor& tensor, DType dtype, std::size_t columns, std::string_view what) {
  if (!tensor) return;
  invariant(tensor.dtype == dtype, what);
  invariant(tensor.rows() == 0 || tensor.columns() == columns, what);
}

void check_parameter(const Tensor& tensor, DType dtype, std::size_t elements,
                     std::string_view what) {
  if (!tensor) return;
  invariant(tensor.dtype == dtype && tensor.elements() == elements, what);
}

void check_spec(const ConvolutionSpec& spec) {
  invariant(spec.channels > 0 && spec.filters > 0, "a convolution without channels or filters");
  check_windows(spec);
}

void check_spec(const PoolSpec& spec) {
  invariant(spec.channels > 0, "a pool without channels");
  invariant(!spec.relu || spec.kind == PoolKind::kMax, "ReLU's mask in a pool of averages");
  check_windows(spec);
  invariant(spec.padding < spec.kernel_height && spec.padding < spec.kernel_width,
            "a padding as wide as the window of a pool: some windows would be empty");
}

void check_call(const BatchNormSpec& spec, DType dtype, const BatchNormForward& call) {
  invariant(spec.channels > 0 && spec.positions > 0, "a batch norm without channels");
  for (const Tensor& batch : {call.x, call.other, call.y}) {
    check_batch(batch, dtype, spec.columns(), "batch norm: x, other or y");
  }
  check_parameter(call.scale, dtype, spec.channels, "batch norm: scale");
  check_parameter(call.shift, dtype, spec.channels, "batch norm: shift");
  if (call.other_moments != nullptr) {
    invariant(call.other && call.other_scale && call.other_shift, "batch norm: half a pair");
    check_parameter(call.other_scale, dtype, spec.channels, "batch norm: scale of other");
    check_parameter(call.other_shift, dtype, spec.channels, "batch norm: shift of other");
  }
  invariant(call.moments != nullptr && (call.mask != nullptr || spec.mask_of_row() == 0),
            "batch norm: no moments or no mask");
}

void check_call(const BatchNormSpec& spec, DType dtype, const BatchNormBackward& call) {
  invariant(spec.channels > 0 && spec.positions > 0, "a batch norm without channels");
  for (const Tensor& batch : {call.x, call.dy, call.dx, call.dother}) {
    check_batch(batch, dtype, spec.columns(), "batch norm: x, dy, dx or dother");
  }
  check_parameter(call.scale, dtype, spec.channels, "batch norm: scale");
  invariant(call.moments != nullptr && (call.mask != nullptr || spec.mask_of_row() == 0),
            "batch norm: no moments or no mask");
}

void check_ids(const RowSource& source, const Tensor& x, std::string_view layer) {
  invariant(source.rows > 0 && source.rows <= RowSource::kMostRows,
            "ids that cannot be told apart");
  invariant(source.fields <= 0xffffffff / source.rows, "a table of more rows than 32 bits count");
  invariant(source.first + source.fields <= x.columns(), "ids in columns that are not there");
  invariant(!is_integer(x.dtype), "ids that are integers");
  constexpr std::size_t kMostIds = 256;  // both 16-bit types represent integers up to this
  require(size_of(x.dtype) != 2 || source.rows <= kMostIds,
          "layer {}: ids of {} rows cannot be told apart in {}, which counts to {}; train this "
          "model in float32",
          layer, source.rows, name(x.dtype), kMostIds);
}

std::size_t check_places(const EmbeddingSpec& spec, std::size_t rows, const std::uint32_t* places,
                         const Tensor& w) {
  invariant(spec.fields > 0 && spec.columns > 0, "an embedding without fields or columns");
  invariant(w.elements() % spec.columns == 0, "a table whose last row is cut");
  const std::size_t table = w.elements() / spec.columns;
  bool inside = true;
  for (std::size_t i = 0; i < rows * spec.fields; ++i) inside &= places[i] < table;
  invariant(inside, "an embedding of a row that the table does not have");
  return table;
}

void check_reduce(const ReduceArguments& a, std::size_t most) {
  invariant(!a.from.empty(), "a reduction without sources");
  invariant(a.count <= most || a.epilogue != Epilogue::kSquares, "squares of more than a block");
  invariant(a.epilogue != Epilogue::kScale || (a.op == ReduceOp::kSum && !is_integer(a.dtype)),
            "a scale of integers, or of something else than a sum");
  invariant(a.epilogue != Epilogue::kRound || a.dtype == DType::kFloat32,
            "numbers other than float32 rounded to bfloat16");
  if (a.target) {
    invariant(a.from.size() == 1 && a.epilogue == Epilogue::kNone,
              "a sum, or an epilogue, on the way to another type");
    const bool narrows = a.dtype == DType::kFloat32 && *a.target == DType::kBFloat16;
    const bool widens = a.dtype == DType::kBFloat16 && *a.target == DType::kFloat32;
    invariant(narrows || widens, "numbers other than float32 and bfloat16 to another type");
  }
  if (a.epilogue == Epilogue::kSquares) invariant(a.squares != nullptr, "no place for squares");
  invariant(a.update.boundaries.empty() || a.epilogue == Epilogue::kUpdate, "a decay of sums");
  if (a.epilogue != Epilogue::kUpdate) return;
  invariant(a.update.boundaries.size() <= kMostBoundaries,
            "more boundaries of the decay than an update takes");
  invariant(!is_integer(a.dtype), "an update of integers");
  invariant(!has_master(a.dtype) || a.update.master != nullptr, "an update without its masters");
  invariant(a.op == ReduceOp::kSum, "an update from something else than a sum");
  invariant(a.update.rule != nullptr && a.update.state != nullptr && a.update.weight != nullptr,
            "an update without rule, state or weights");
  for (std::size_t s = 0; s < a.update.rule->slots(); ++s) {
    invariant(a.update.slots[s] != nullptr, "an update without its slots");
  }
}

std::size_t class_of(float target, std::size_t classes, std::size_t row, const std::int64_t* ids) {
  require(is_index(target, classes), "{} {} has the class {}; classes are 0 to {}",
          ids == nullptr ? "row" : "example", ids == nullptr ? std::int64_t(row) : ids[row], target,
          classes - 1);
  return std::size_t(target);
}

}  // namespace lockstep::engine
