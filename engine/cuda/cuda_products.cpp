// SPDX-License-Identifier: MIT
// Dense layers and convolutions. The libraries compute the products over all planned rows;
// lockstep's own kernels mask the gradients of fused ReLUs and compute bias gradients, and convolve
// with few channels or narrow filters.
#include "engine/base/error.h"
#include "engine/cuda/cuda_ops.h"
#include "engine/cuda/few_channel_convolution.h"
#include "engine/cuda/kernels/column_sums.h"
#include "engine/cuda/narrow_convolution.h"
#include "engine/cuda/space_to_depth_convolution.h"
#include "engine/ops/checks.h"

namespace lockstep::engine::cuda {
namespace {

std::size_t aligned_bytes(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

}  // namespace

void CudaOps::dense_forward(const StepState* state, const DenseSpec& spec, Tensor x, Tensor w,
                            Tensor b, Tensor y) {
  check_batch(x, dtype_, spec.inputs, "x of a dense layer");
  check_batch(y, dtype_, spec.outputs, "y of a dense layer");
  check_parameter(w, dtype_, spec.inputs * spec.outputs, "weights of a dense layer");
  check_parameter(b, dtype_, spec.outputs, "the bias of a dense layer");
  invariant(state != nullptr && x.rows() == y.rows(), "a dense layer of two batches");
  lane_->products->run(lane_->stream,
                       {.dtype = dtype_,
                        .m = x.rows(),
                        .n = spec.outputs,
                        .k = spec.inputs,
                        .transpose_b = true,
                        .bias = bool(b),
                        .relu = spec.activation == Activation::kRelu},
                       x.data, w.data, b.data, y.data);
}

void CudaOps::begin_apart(std::size_t running) {
  if (separate_.layers > running)
    stream_.wait(separate_.done[(separate_.layers - 1 - running) % kMostApart]);
  separate_.on = true;
}

void CudaOps::end_apart() {
  gradients_.stream.record(separate_.done[separate_.layers++ % kMostApart]);
  separate_.on = false;
}

void CudaOps::join_apart() {
  if (separate_.on) end_apart();  // after an exception in backward
  if (separate_.layers > 0) stream_.wait(separate_.done[(separate_.layers - 1) % kMostApart]);
  separate_.layers = 0;
}

template <class Data, class Gradients>
void CudaOps::backward_apart(bool has_dx, Data data, Gradients gradients) {
  if (!separate_.on || !has_dx) {
    if (has_dx) data();
    return gradients();
  }
  struct Away {
    CudaOps& ops;
    explicit Away(CudaOps& o) : ops(o) { ops.lane_ = &ops.gradients_; }
    ~Away() { ops.lane_ = &ops.main_; }
  };
  stream_.record(separate_.forked);
  gradients_.stream.wait(separate_.forked);
  data();
  const Away away(*this);
  gradients();
}

void CudaOps::dense_backward(const StepState* state, const DenseSpec& spec, Tensor x, Tensor y,
                             Tensor dy, Tensor w, Tensor dx, Tensor dw, Tensor db,
                             bool accumulate) {
  check_batch(x, dtype_, spec.inputs, "x of a dense layer");
  check_batch(dy, dtype_, spec.outputs, "dy of a dense layer");
  check_batch(dx, dtype_, spec.inputs, "dx of a dense layer");
  check_parameter(dw, dtype_, spec.inputs * spec.outputs, "the gradient of weights");
  const std::size_t rows = dy.rows();
  mask_gradient(state, spec.outputs, spec.activation, y, dy);
  if (dw) {
    clear_rest(state, x);
    clear_rest(state, dy);
  }
  const auto data = [&] {
    lane_->products->run(lane_->stream,
                         {.dtype = dtype_, .m = rows, .n = spec.inputs, .k = spec.outputs}, dy.data,
                         w.data, nullptr, dx.data);
  };
  backward_apart(bool(dx), data, [&] {
    bias_gradient(state, 1, spec.outputs, dy, db, accumulate);
    if (!dw) return;
    lane_->products->run(lane_->stream,
                         {.dtype = dtype_,
                          .m = spec.outputs,
                          .n = spec.inputs,
                          .k = rows,
                          .transpose_a = true,
                          .accumulate = accumulate},
                         dy.data, x.data, nullptr, dw.data);
  });
}

void CudaOps::convolution_forward(const StepState* state, const ConvolutionSpec& spec, Tensor x,
                                  Tensor w, Tensor b, Tensor y) {
  check_spec(spec);
  check_batch(x, dtype_, spec.inputs(), "x of a convolution");
  check_batch(y, dtype_, spec.outputs(), "y of a convolution");
  check_parameter(w, dtype_, spec.weights(), "weights of a convolution");
  check_parameter(b, dtype_, spec.filters, "the bias of a convolution");
  invariant(state != nullptr && x.rows() == y.rows(), "a convolution of two batches");
  if (has_few_channels(spec)) {
    check_aligned({y.data});
    const FewChannelSizes sizes = few_channel_sizes(spec);
    const std::size_t most = std::size_t(context_->facts().multiprocessors) * kLineResidents;
    launch({.blocks = unsigned(least(x.rows() * sizes.bands(), most)), .threads = kLineThreads},
           FewChannelForward{state, sizes, x.data, w.data, b.data, y.data,
                             spec.activation == Activation::kRelu});
    return;
  }
  if (has_narrow_outputs(spec, dtype_, context_->facts().capability))
    return narrow_outputs(state, spec, x, w, b, y);
  ConvolutionSpec given = spec;
  given.bias = bool(b);
  const std::byte *images = x.data, *weights = w.data;
  if (uses_space_to_depth(spec)) {
    given = space_to_depth(given);
    std::byte* const room = space_to_depth_images(state, spec, x, given.weights());
    launch(grid_for(given.weights()),
           SpaceToDepthWeights{space_to_depth_sizes(spec), w.data, room});
    weights = room, images = room + aligned_bytes(given.weights() * size_of(dtype_));
  }
  lane_->convolutions->run(
      lane_->stream,
      {.pass = Convolution::Pass::kForward, .spec = given, .rows = x.rows(), .dtype = dtype_},
      images, weights, b.data, y.data);
}

// Returns scratch memory for `before` elements, followed at the next multiple of 256 bytes by the
// rearranged images of x. The next call may reuse all of it.
std::byte* CudaOps::space_to_depth_images(const StepState* state, const ConvolutionSpec& spec,
                                          Tensor x, std::size_t before) {
  const std::size_t images = x.rows() * space_to_depth(spec).inputs(),
                    begin = aligned_bytes(before * size_of(dtype_));
  std::byte* const room = lane_->scratch(begin + images * size_of(dtype_));
  launch(grid_for(images),
         SpaceToDepthImages{state, space_to_depth_sizes(spec), x.rows(), x.data, room + begin});
  return room;
}

void CudaOps::convolution_backward(const StepState* state, const ConvolutionSpec& spec, Tensor x,
                                   Tensor y, Tensor dy, Tensor w, Tensor dx, Tensor dw, Tensor db,
                                   bool accumulate) {
  check_spec(spec);
  check_batch(x, dtype_, spec.inputs(), "x of a convolution");
  check_batch(dy, dtype_, spec.outputs(), "dy of a convolution");
  check_batch(dx, dtype_, spec.inputs(), "dx of a convolution");
  check_parameter(dw, dtype_, spec.weights(), "the gradient of weights");
  if (has_few_channels(spec) && !dx)
    return few_channel_gradients(state, spec, x, y, dy, dw, db, accumulate);
  mask_gradient(state, spec.outputs(), spec.activation, y, dy);
  if (dw && !is_narrow(spec, dtype_)) {
    clear_rest(state, dy);
    if (!uses_space_to_depth(spec)) clear_rest(state, x);
  }
  // Bias and activation are not part of these sums.
  ConvolutionSpec bare = spec;
  bare.bias = bare.adds = false;
  bare.activation = Activation::kNone;
  const Convolution call{.spec = bare, .rows = dy.rows(), .dtype = dtype_};
  const auto data = [&] {
    if (!spec.adds && has_narrow_outputs(spec, dtype_, context_->facts().capability))
      return narrow_outputs(state, spec, dy, w, {}, dx, true);
    Convolution sum = call;
    sum.pass = Convolution::Pass::kGradientOfData;
    sum.accumulate = spec.adds;
    lane_->convolutions->run(lane_->stream, sum, dy.data, w.data, nullptr, dx.data);
  };
  backward_apart(bool(dx), data, [&] {
    if (dw && is_narrow(spec, dtype_))
      return narrow_gradients(state, spec, x, dy, dw, db, accumulate);
    bias_gradient(state, spec.output_height() * spec.output_width(), spec.filters, dy, db,
                  accumulate);
    if (dw) weights_gradient(state, call, x, dy, dw, accumulate);
  });
}

void CudaOps::weights_gradient(const StepState* state, Convolution call, Tensor x, Tensor dy,
                               Tensor dw, bool accumulate) {
  const ConvolutionSpec spec = call.spec;
  call.pass = Convolution::Pass::kGradientOfWeights;
  call.accumulate = accumulate;
  if (!uses_space_to_depth(spec)) {
    lane_->convolutions->run(lane_->stream, call, x.data, dy.data, nullptr, dw.data);
    return;
  }
  call.spec = space_to_depth(spec);
  std::byte* const room = space_to_depth_images(state, spec, x, call.spec.weights());
  const std::byte* const images = room + aligned_bytes(call.spec.weights() * size_of(dtype_));
  if (accumulate)  // existing values, so the sum rounds once
    launch(grid_for(call.spec.weights()),
           SpaceToDepthWeights{space_to_depth_sizes(spec), dw.data, room});
  lane_->convolutions->run(lane_->stream, call, images, dy.data, nullptr, room);
  launch(grid_for(spec.weights()), DepthToSpaceGradient{space_to_depth_sizes(spec), room, dw.data});
}

// Makes one pass over all rows in use per kFewChannelTaps taps. The first pass also computes the
// bias gradient.
void CudaOps::few_channel_gradients(const StepState* state, const ConvolutionSpec& spec, Tensor x,
                                    Tensor y, Tensor dy, Tensor dw, Tensor db, bool accumulate) {
  check_parameter(db, dtype_, spec.filters, "the gradient of a bias");
  const bool relu = spec.activation == Activation::kRelu;
  if (relu) check_batch(y, dtype_, spec.outputs(), "y of a convolution");
  check_aligned({dy.data, relu ? y.data : nullptr});
  const std::size_t lines = dy.rows() * spec.output_height() * spec.output_width();
  const std::size_t groups = spec.filters / kFewChannelWidth;
  const FewChannelSizes sizes = few_channel_sizes(spec);
  for (unsigned tap = 0; tap < (dw ? sizes.taps() : db ? 1u : 0u); tap += kFewChannelTaps) {
    const Partials room = partials(lines, spec.filters, groups, kFewChannelTaps + 1);
    launch(sums_grid(groups, room),
           FewChannelGradients{state, sizes, tap, x.data, relu ? y.data : nullptr, dy.data, room,
                               dw.data, tap == 0 ? db.data : nullptr, accumulate});
  }
}

void CudaOps::narrow_gradients(const StepState* state, const ConvolutionSpec& spec, Tensor x,
                               Tensor dy, Tensor dw, Tensor db, bool accumulate) {
  check_parameter(db, dtype_, spec.filters, "the gradient of a bias");
  check_aligned({x.data, dy.data});
  const NarrowSizes sizes = narrow_sizes(spec);
  const bool groups = has_narrow_group_gradient(spec, dtype_, context_->facts().capability);
  const NarrowGroupSizes of_groups = groups ? narrow_group_sizes(spec) : NarrowGroupSizes{};
  const unsigned bands = groups ? of_groups.bands() : sizes.bands();
  const auto chunks = unsigned(least(dy.rows() * bands, kMostNarrowChunks));
  auto* const sums =
      reinterpret_cast<float*>(lane_->scratch(chunks * sizes.sums() * sizeof(float)));
  if (groups)
    launch({.blocks = chunks, .threads = kNarrowGroupThreads, .shared = of_groups.bytes()},
           NarrowGroupGradient{state, of_groups, x.data, dy.data, chunks, sums});
  else
    launch({.blocks = chunks, .threads = sizes.threads(), .shared = 2 * sizes.band_bytes()},
           NarrowGradient{state, sizes, x.data, dy.data, chunks, sums});
  launch({.blocks = (sizes.sums() + kNarrowEndValues - 1) / kNarrowEndValues,
          .threads = kNarrowEndThreads},
         NarrowGradientEnd{sizes, chunks, sums, dw.data, db.data, accumulate});
}

// If `turned`, x is the gradient of the outputs and y the gradient of the data.
void CudaOps::narrow_outputs(const StepState* state, const ConvolutionSpec& spec, Tensor x,
                             Tensor w, Tensor b, Tensor y, bool turned) {
  check_aligned({x.data, w.data, b.data, y.data});
  const auto multiprocessors = std::size_t(context_->facts().multiprocessors);
  const NarrowOutputSizes sizes = narrow_output_sizes(spec, turned, x.rows(), multiprocessors);
  launch({.blocks = unsigned(least(x.rows() * sizes.bands(), multiprocessors)),
          .threads = kNarrowOutputThreads,
          .shared = sizes.bytes(turned)},
         NarrowOutputs{state, sizes, x.data, w.data, b.data, y.data, turned,
                       !turned && spec.activation == Activation::kRelu});
}

// Sets dy to zero at outputs that a fused ReLU clipped.
void CudaOps::mask_gradient(const StepState* state, std::size_t columns, Activation activation,
                            Tensor y, Tensor dy) {
  if (activation != Activation::kRelu) return;
  check_batch(y, dtype_, columns, "y of a layer");
  launch(grid_for(dy.elements()), MaskGradient{state, columns, y.data, dy.data});
}

// Computes db, if wanted: the sums of dy over `positions` of each row.
void CudaOps::bias_gradient(const StepState* state, std::size_t positions, std::size_t channels,
                            Tensor dy, Tensor db, bool accumulate) {
  if (!db) return;
  check_parameter(db, dtype_, channels, "the gradient of a bias");
  const std::size_t groups = line_groups(channels);
  const Partials room = partials(dy.rows() * positions, channels, groups, 1);
  launch(sums_grid(groups, room),
         ColumnSums{state, positions, channels, dy.data, room, db.data, accumulate});
}

}  // namespace lockstep::engine::cuda
