// SPDX-License-Identifier: MIT
#include "test/engine/cuda/fake_graph_run.h"

#include "test/engine/cuda/fake_cudnn.h"

namespace lockstep::engine::cuda {
namespace {

// Calls `visit` with each place of four extents.
template <class Visit>
void each_place(const std::vector<std::int64_t>& extents, Visit visit) {
  for (std::int64_t n = 0; n < extents[0]; ++n) {
    for (std::int64_t c = 0; c < extents[1]; ++c) {
      for (std::int64_t h = 0; h < extents[2]; ++h) {
        for (std::int64_t w = 0; w < extents[3]; ++w) visit(std::array{n, c, h, w});
      }
    }
  }
}

}  // namespace

FakeGraphRun::FakeGraphRun(const FakeAttributes& pack) {
  const auto numbers = attributes<std::int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = attributes<void*>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  invariant(numbers.size() == pointers.size(), "each number has an address");
  for (std::size_t i = 0; i < numbers.size(); ++i) addresses_[numbers[i]] = pointers[i];
}

float& FakeGraphRun::Operand::at(std::array<std::int64_t, 4> place) const {
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < place.size(); ++i) offset += place[i] * strides[i];
  return data[offset];
}

FakeGraphRun::Operand FakeGraphRun::operand(const FakeAttributes& operation, int name) {
  const auto* const object = attribute<const FakeCudnn::Object*>(operation, name);
  const FakeAttributes& tensor = object->attributes;
  if (attribute<int>(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE) != CUDNN_DATA_FLOAT) float32_ = false;
  Operand made{.extents = attributes<std::int64_t>(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS),
               .strides = attributes<std::int64_t>(tensor, CUDNN_ATTR_TENSOR_STRIDES)};
  const auto number = attribute<std::int64_t>(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID);
  if (attribute<bool>(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL)) {
    std::size_t count = 1;
    for (const std::int64_t extent : made.extents) count *= std::size_t(extent);
    std::vector<float>& values = between_[number];
    values.resize(count);
    made.data = values.data();
  } else {
    made.data = static_cast<float*>(addresses_.at(number));
  }
  return made;
}

void FakeGraphRun::operation(int type, const FakeAttributes& operation) {
  if (type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) return pointwise(operation);
  if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) {
    return convolution(operation, {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 'y'});
  }
  if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) {
    return convolution(operation, {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 'x'});
  }
  invariant(type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            "an operation that the fake cuDNN knows");
  convolution(operation, {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 'w'});
}

void FakeGraphRun::convolution(const FakeAttributes& operation, const Names& names) {
  const Operand x = operand(operation, names.x), w = operand(operation, names.w),
                y = operand(operation, names.y);
  if (!float32_) return;
  const FakeAttributes& sizes =
      attribute<const FakeCudnn::Object*>(operation, names.convolution)->attributes;
  const auto steps = attributes<std::int64_t>(sizes, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  const auto padding = attributes<std::int64_t>(sizes, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  const auto alpha = attribute<float>(operation, names.alpha);
  const auto beta = attribute<float>(operation, names.beta);
  const Operand& written = names.written == 'x' ? x : names.written == 'w' ? w : y;
  each_place(written.extents,
             [&](auto place) { written.at(place) = beta == 0 ? 0 : beta * written.at(place); });
  each_place(y.extents, [&](auto out) {
    const auto [n, filter, row, column] = out;
    each_place({1, w.extents[1], w.extents[2], w.extents[3]}, [&](auto at) {
      const std::array<std::int64_t, 4> in{n, at[1], row * steps[0] + at[2] - padding[0],
                                           column * steps[1] + at[3] - padding[1]};
      if (in[2] < 0 || in[2] >= x.extents[2] || in[3] < 0 || in[3] >= x.extents[3]) return;
      const std::array<std::int64_t, 4> weight{filter, at[1], at[2], at[3]};
      if (names.written == 'x') x.at(in) += alpha * y.at(out) * w.at(weight);
      if (names.written == 'w') w.at(weight) += alpha * x.at(in) * y.at(out);
      if (names.written == 'y') y.at(out) += alpha * x.at(in) * w.at(weight);
    });
  });
}

void FakeGraphRun::pointwise(const FakeAttributes& operation) {
  const auto* const what =
      attribute<const FakeCudnn::Object*>(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  const Operand x = operand(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
  const Operand y = operand(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  if (attribute<int>(what->attributes, CUDNN_ATTR_POINTWISE_MODE) == CUDNN_POINTWISE_ADD) {
    const Operand b = operand(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    if (!float32_) return;
    // The bias has one element per channel.
    each_place(y.extents, [&](auto at) { y.at(at) = x.at(at) + b.at({0, at[1], 0, 0}); });
    return;
  }
  const bool keeps_nan =
      attribute<int>(what->attributes, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION) == CUDNN_PROPAGATE_NAN;
  if (!float32_) return;
  each_place(y.extents, [&](auto at) {
    const float value = x.at(at);
    y.at(at) = value > 0 || (keeps_nan && value != value) ? value : 0;
  });
}

}  // namespace lockstep::engine::cuda
