// SPDX-License-Identifier: MIT
#include "bench/traffic_ops.h"

namespace lockstep::bench {

using engine::Activation;
using engine::StepState;
using engine::Tensor;

double TrafficOps::batch(Tensor tensor) const {
  return tensor ? double(rows_) * double(tensor.columns()) * double(size_of(tensor.dtype)) : 0;
}

double TrafficOps::whole(Tensor tensor) {
  return tensor ? double(tensor.elements()) * double(size_of(tensor.dtype)) : 0;
}

double TrafficOps::gradient(Tensor parameter, bool accumulate) {
  return whole(parameter) * (accumulate ? 2 : 1);
}

void TrafficOps::count(std::string_view kernel, double bytes, double operations) {
  calls_.push_back({std::string(kernel), bytes, operations});
}

// Counts a pass over dy before the products, for the mask of a fused ReLU and the sums of the
// columns.
void TrafficOps::bias_gradient(Activation activation, Tensor y, Tensor dy, Tensor db,
                               bool accumulate) {
  const bool masks = activation == Activation::kRelu;
  if (!masks && !db) return;
  count("bias gradient", batch(dy) + (masks ? batch(y) + batch(dy) : 0) + gradient(db, accumulate));
}

void TrafficOps::dense_forward(const StepState*, const engine::DenseSpec& spec, Tensor x, Tensor w,
                               Tensor b, Tensor y) {
  count("product", batch(x) + whole(w) + whole(b) + batch(y),
        2 * double(rows_) * double(spec.inputs) * double(spec.outputs));
}

void TrafficOps::dense_backward(const StepState*, const engine::DenseSpec& spec, Tensor x, Tensor y,
                                Tensor dy, Tensor w, Tensor dx, Tensor dw, Tensor db,
                                bool accumulate) {
  bias_gradient(spec.activation, y, dy, db, accumulate);
  const double once = 2 * double(rows_) * double(spec.inputs) * double(spec.outputs);
  if (dx) count("gradient of data", batch(dy) + whole(w) + batch(dx), once);
  if (dw) count("gradient of weights", batch(x) + batch(dy) + gradient(dw, accumulate), once);
}

namespace {

double operations_of(const engine::ConvolutionSpec& spec, std::size_t rows) {
  const std::size_t products = spec.kernel_height * spec.kernel_width * spec.channels;
  return 2 * double(rows) * double(spec.outputs()) * double(products);
}

// Returns the fraction of the input's pixels that a convolution reads. With a stride above the
// kernel it reads only some.
double seen(const engine::ConvolutionSpec& spec) {
  if (spec.kernel_height >= spec.stride || spec.kernel_width >= spec.stride) return 1;
  return double(spec.output_height() * spec.output_width() * spec.kernel_height *
                spec.kernel_width) /
         double(spec.height * spec.width);
}

}  // namespace

void TrafficOps::convolution_forward(const StepState*, const engine::ConvolutionSpec& spec,
                                     Tensor x, Tensor w, Tensor b, Tensor y) {
  count("convolution", seen(spec) * batch(x) + whole(w) + whole(b) + batch(y),
        operations_of(spec, rows_));
}

// The gradient of the data is written completely, even outside of all windows.
void TrafficOps::convolution_backward(const StepState*, const engine::ConvolutionSpec& spec,
                                      Tensor x, Tensor y, Tensor dy, Tensor w, Tensor dx, Tensor dw,
                                      Tensor db, bool accumulate) {
  bias_gradient(spec.activation, y, dy, db, accumulate);
  const double once = operations_of(spec, rows_);
  if (dx) count("gradient of data", batch(dy) + whole(w) + (spec.adds ? 2 : 1) * batch(dx), once);
  if (dw)
    count("gradient of weights", seen(spec) * batch(x) + batch(dy) + gradient(dw, accumulate),
          once);
}

std::size_t TrafficOps::pool_workspace(const engine::PoolSpec& spec, std::size_t rows) {
  return spec.kind == engine::PoolKind::kMax ? rows * spec.outputs() : 0;  // one byte per output
}

void TrafficOps::pool_forward(const StepState*, const engine::PoolSpec& spec, Tensor x, Tensor y,
                              std::byte*) {
  count("pool", batch(x) + batch(y) + double(pool_workspace(spec, rows_)));
}

void TrafficOps::pool_backward(const StepState*, const engine::PoolSpec& spec, Tensor dy, Tensor dx,
                               const std::byte*) {
  count("pool backward", batch(dy) + batch(dx) + double(pool_workspace(spec, rows_)));
}

void TrafficOps::batch_norm_sums(const StepState*, const engine::BatchNormSpec&, Tensor x,
                                 double*) {
  count("batch norm: sums", batch(x));
}

void TrafficOps::batch_norm_forward(const StepState*, const engine::BatchNormSpec& spec,
                                    const engine::BatchNormForward& call) {
  count("batch norm",
        batch(call.x) + batch(call.other) + batch(call.y) + double(rows_ * spec.mask_of_row()));
}

void TrafficOps::batch_norm_gradient_sums(const StepState*, const engine::BatchNormSpec& spec,
                                          const engine::BatchNormBackward& call, Tensor, Tensor,
                                          bool, double*) {
  count("batch norm: sums of gradients",
        batch(call.x) + batch(call.dy) + double(rows_ * spec.mask_of_row()));
}

void TrafficOps::batch_norm_backward(const StepState*, const engine::BatchNormSpec& spec,
                                     const engine::BatchNormBackward& call) {
  count("batch norm backward", batch(call.x) + batch(call.dy) + batch(call.dx) +
                                   batch(call.dother) + double(rows_ * spec.mask_of_row()));
}

// Counts dy and mask once, because both gradients read the same.
void TrafficOps::batch_norm_pair_gradient_sums(const StepState*, const engine::BatchNormSpec& spec,
                                               const engine::BatchNormPair& pair, bool,
                                               const std::array<engine::BatchNormGradients, 2>&) {
  count("batch norm: sums of gradients", batch(pair[0].x) + batch(pair[1].x) + batch(pair[0].dy) +
                                             double(rows_ * spec.mask_of_row()));
}

void TrafficOps::batch_norm_pair_backward(const StepState*, const engine::BatchNormSpec& spec,
                                          const engine::BatchNormPair& pair) {
  count("batch norm backward", batch(pair[0].x) + batch(pair[1].x) + batch(pair[0].dy) +
                                   batch(pair[0].dx) + batch(pair[1].dx) +
                                   double(rows_ * spec.mask_of_row()));
}

void TrafficOps::relu(const StepState*, Tensor x, Tensor y) {
  count("relu", batch(x) + batch(y));
}

void TrafficOps::relu_gradient(const StepState*, Tensor y, Tensor dy, Tensor dx) {
  count("relu backward", batch(y) + batch(dy) + batch(dx));
}

void TrafficOps::tanh(const StepState*, Tensor x, Tensor y) {
  count("tanh", batch(x) + batch(y));
}

void TrafficOps::tanh_gradient(const StepState*, Tensor y, Tensor dy, Tensor dx) {
  count("tanh backward", batch(y) + batch(dy) + batch(dx));
}

void TrafficOps::add(const StepState*, Tensor a, Tensor b, Tensor y) {
  count("add", batch(a) + batch(b) + batch(y));
}

void TrafficOps::copy(const StepState*, Tensor x, Tensor y) {
  count("copy", batch(x) + batch(y));
}

void TrafficOps::dropout(const StepState*, const engine::DropoutSpec&, Tensor x, Tensor y) {
  count("dropout", batch(x) + batch(y));
}

void TrafficOps::copy_columns(const StepState*, Tensor x, std::size_t, Tensor, std::size_t,
                              std::size_t columns) {
  count("columns", 2 * double(rows_ * columns * size_of(x.dtype)));
}

void TrafficOps::clear(const StepState*, Tensor y) {
  count("zeros", batch(y));
}

void TrafficOps::embedding_rows(const StepState*, const engine::RowSource& source, Tensor x,
                                std::string_view, std::uint32_t*) {
  count("ids", double(rows_ * source.fields) * double(size_of(x.dtype) + sizeof(std::uint32_t)));
}

void TrafficOps::embedding_forward(const StepState*, const engine::EmbeddingSpec& spec,
                                   const std::uint32_t*, Tensor w, Tensor y) {
  const double picked = double(rows_ * spec.fields);
  count("embedding",
        picked * double(spec.columns * size_of(w.dtype) + sizeof(std::uint32_t)) + batch(y));
}

// All rows of the gradient are written; unused rows get zeros.
void TrafficOps::embedding_backward(const StepState*, const engine::EmbeddingSpec& spec,
                                    const std::uint32_t*, Tensor dy, Tensor dw, bool accumulate) {
  count("embedding backward",
        double(rows_ * spec.fields * sizeof(std::uint32_t)) + batch(dy) + gradient(dw, accumulate));
}

void TrafficOps::softmax_cross_entropy(const StepState*, double, Tensor logits, Tensor target,
                                       Tensor dlogits, Tensor losses, Tensor correct) {
  count("softmax and its gradient",
        batch(logits) + batch(target) + batch(dlogits) + batch(losses) + batch(correct));
}

void TrafficOps::squared_error(const StepState*, Tensor y, Tensor target, Tensor dy,
                               Tensor losses) {
  count("squared error", batch(y) + batch(target) + batch(dy) + batch(losses));
}

void TrafficOps::softmax(const StepState*, Tensor logits, Tensor probabilities) {
  count("softmax", batch(logits) + batch(probabilities));
}

// Besides the copy from the host, float32 is read, and written in the dtype of the ops.
void TrafficOps::load(const float*, Tensor x) {
  count("input", double(rows_) * double(x.columns()) * double(sizeof(float) + size_of(x.dtype)));
}

}  // namespace lockstep::bench
