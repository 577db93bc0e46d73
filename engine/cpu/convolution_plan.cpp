// SPDX-License-Identifier: MIT
#include "engine/cpu/convolution_plan.h"

namespace lockstep::engine::cpu {
namespace {

using dnnl::memory;
using Dim = memory::dim;
using Tag = memory::format_tag;

constexpr memory::data_type kSums = memory::data_type::f32;

}  // namespace

ConvolutionPlan convolution_plan(const ConvolutionSpec& s, std::size_t rows,
                                 memory::data_type type) {
  ConvolutionPlan plan;
  const memory::dims weights = {Dim(s.filters), Dim(s.channels), Dim(s.kernel_height),
                                Dim(s.kernel_width)};
  plan.x = {{Dim(rows), Dim(s.channels), Dim(s.height), Dim(s.width)}, type, Tag::nhwc};
  plan.y = {
      {Dim(rows), Dim(s.filters), Dim(s.output_height()), Dim(s.output_width())}, type, Tag::nhwc};
  plan.w_plain = {weights, type, Tag::ohwi};
  plan.w_any = {weights, type, Tag::any};
  plan.dw_plain = {weights, kSums, Tag::ohwi};
  plan.dw_any = {weights, kSums, Tag::any};
  if (s.bias) plan.b = {{Dim(s.filters)}, type, Tag::a};
  if (s.bias) plan.db = {{Dim(s.filters)}, kSums, Tag::a};
  plan.strides = {Dim(s.stride), Dim(s.stride)};
  plan.padding = {Dim(s.padding), Dim(s.padding)};
  plan.activation = s.activation;
  plan.name = fmt::format("convolution forward {}x{}x{} to {} by {}x{}, stride {}, padding {}",
                          s.height, s.width, s.channels, s.filters, s.kernel_height, s.kernel_width,
                          s.stride, s.padding);
  return plan;
}

ConvolutionPlan input_gradient_plan(const ConvolutionSpec& s, std::size_t rows,
                                    memory::data_type type) {
  ConvolutionPlan plan = convolution_plan(s, rows, type);
  const memory::desc dx = plan.x;
  const memory::dims weights = {Dim(s.channels), Dim(s.filters), Dim(s.kernel_height),
                                Dim(s.kernel_width)};
  plan.x = plan.y;
  plan.y = dx;
  plan.w_plain = {weights, type, Tag::ohwi};
  plan.w_any = {weights, type, Tag::any};
  plan.b = {};
  plan.padding = {Dim(s.kernel_height - 1 - s.padding), Dim(s.kernel_width - 1 - s.padding)};
  plan.activation = Activation::kNone;
  plan.name = "gradient of the input, turned, of " + plan.name;
  return plan;
}

template <class T>
void turn_weights(const ConvolutionSpec& s, const T* w, T* turned) {
  const std::size_t places = s.kernel_height * s.kernel_width;
  for (std::size_t c = 0; c < s.channels; ++c) {
    for (std::size_t place = 0; place < places; ++place) {
      T* to = turned + (c * places + (places - 1 - place)) * s.filters;
      const T* from = w + place * s.channels + c;
      for (std::size_t f = 0; f < s.filters; ++f) to[f] = from[f * places * s.channels];
    }
  }
}

template void turn_weights(const ConvolutionSpec&, const float*, float*);
template void turn_weights(const ConvolutionSpec&, const BFloat16*, BFloat16*);

dnnl::convolution_forward::primitive_desc forward_primitive(const Library& library,
                                                            const ConvolutionPlan& plan) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (plan.activation == Activation::kRelu) {
    dnnl::post_ops after;
    after.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
    attributes.set_post_ops(after);
  }
  const dnnl::convolution_forward::desc what(
      dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, plan.x, plan.w_any,
      plan.b, plan.y, plan.strides, plan.padding, plan.padding);
  return {what, attributes, library.engine()};
}

ForwardCall::ForwardCall(Library& library, const ConvolutionPlan& plan, ScratchLayout& layout) {
  const auto primitive = forward_primitive(library, plan);
  library.made(plan.name, primitive.impl_info_str());
  const memory::desc weights = primitive.weights_desc(), pad = primitive.scratchpad_desc();
  call_ = Call(library, dnnl::convolution_forward(primitive),
               {{DNNL_ARG_SRC, plan.x},
                {DNNL_ARG_WEIGHTS, weights},
                {DNNL_ARG_BIAS, plan.b},
                {DNNL_ARG_DST, plan.y},
                {DNNL_ARG_SCRATCHPAD, pad}});
  reorder_ = Reorder(library, plan.w_plain, weights);
  weights_at_ = layout.place(weights.get_size());
  pad_at_ = layout.place(pad.get_size());
}

void ForwardCall::set_weights(Library& library, const void* w, const void* b, std::byte* scratch) {
  reorder_.run(library, w, scratch + weights_at_);
  call_.set(DNNL_ARG_WEIGHTS, scratch + weights_at_);
  call_.set(DNNL_ARG_BIAS, b);
  call_.set(DNNL_ARG_SCRATCHPAD, scratch + pad_at_);
}

void ForwardCall::run(Library& library, const void* x, void* y) {
  call_.set(DNNL_ARG_SRC, x);
  call_.set(DNNL_ARG_DST, y);
  call_.run(library);
}

}  // namespace lockstep::engine::cpu
