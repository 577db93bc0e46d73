// SPDX-License-Identifier: MIT
#include "engine/cpu/convolution_backward.h"

#include <algorithm>
#include <string_view>

#include "engine/cpu/loops.h"

namespace lockstep::engine::cpu {
namespace {

using dnnl::memory;

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

// Returns whether forward with rotated weights is faster. Measured with oneDNN 2.6.3: forward
// kernels run at about 1.8 times the speed of backward-data kernels, but the padding multiplies the
// products by (h w) / (oh ow).
bool pays_to_turn(const ConvolutionSpec& s) {
  return s.stride == 1 && s.padding < s.kernel_height && s.padding < s.kernel_width &&
         2 * s.height * s.width <= 3 * s.output_height() * s.output_width();
}

}  // namespace

template <class T>
ConvolutionBackward<T>::ConvolutionBackward(Library&, const ConvolutionSpec& spec, std::size_t rows)
    : spec_(spec), rows_(rows) {}

template <class T>
void ConvolutionBackward<T>::plan_inputs(Library& library) {
  if (pays_to_turn(spec_)) {
    const ConvolutionPlan plan = input_gradient_plan(spec_, rows_, data_type<T>());
    turned_.emplace(library, plan, layout_);
    turned_at_ = layout_.place(plan.w_plain.get_size());
    return;
  }
  const ConvolutionPlan plan = convolution_plan(spec_, rows_, data_type<T>());
  const dnnl::convolution_backward_data::desc what(dnnl::algorithm::convolution_direct, plan.x,
                                                   plan.w_any, plan.y, plan.strides, plan.padding,
                                                   plan.padding);
  const dnnl::convolution_backward_data::primitive_desc primitive(
      what, user_scratchpad(), library.engine(), forward_primitive(library, plan));
  library.made("gradient of the input of " + plan.name, primitive.impl_info_str());
  const memory::desc weights = primitive.weights_desc(), pad = primitive.scratchpad_desc();
  inputs_ = Call(library, dnnl::convolution_backward_data(primitive),
                 {{DNNL_ARG_DIFF_SRC, plan.x},
                  {DNNL_ARG_WEIGHTS, weights},
                  {DNNL_ARG_DIFF_DST, plan.y},
                  {DNNL_ARG_SCRATCHPAD, pad}});
  to_inputs_ = Reorder(library, plan.w_plain, weights);
  inputs_weights_at_ = layout_.place(weights.get_size());
  inputs_pad_at_ = layout_.place(pad.get_size());
}

template <class T>
void ConvolutionBackward<T>::plan_weights(Library& library) {
  const ConvolutionPlan plan = convolution_plan(spec_, rows_, data_type<T>());
  const dnnl::convolution_backward_weights::desc what(dnnl::algorithm::convolution_direct, plan.x,
                                                      plan.dw_any, plan.db, plan.y, plan.strides,
                                                      plan.padding, plan.padding);
  const dnnl::convolution_backward_weights::primitive_desc primitive(
      what, user_scratchpad(), library.engine(), forward_primitive(library, plan));
  library.made("gradient of the weights of " + plan.name, primitive.impl_info_str());
  const memory::desc weights = primitive.diff_weights_desc(), pad = primitive.scratchpad_desc();
  weights_ = Call(library, dnnl::convolution_backward_weights(primitive),
                  {{DNNL_ARG_SRC, plan.x},
                   {DNNL_ARG_DIFF_WEIGHTS, weights},
                   {DNNL_ARG_DIFF_BIAS, plan.db},
                   {DNNL_ARG_DIFF_DST, plan.y},
                   {DNNL_ARG_SCRATCHPAD, pad}});
  from_weights_ = Reorder(library, weights, plan.dw_plain);
  weights_size_ = weights.get_size() / sizeof(float);
  pad_at_ = layout_.place(pad.get_size());
  dw_at_ = layout_.place(std::max(weights.get_size(), plan.dw_plain.get_size()));
  dw_sum_at_ = layout_.place(weights.get_size());
  db_at_ = layout_.place(spec_.filters * sizeof(float));
  db_sum_at_ = layout_.place(spec_.filters * sizeof(float));
}

template <class T>
void ConvolutionBackward<T>::begin(Library& library, const T* w, bool of_inputs, bool of_weights) {
  if (of_inputs && !turned_ && !inputs_) plan_inputs(library);
  if (of_weights && !weights_) plan_weights(library);
  scratch_ = library.scratch(layout_.bytes());
  want_weights_ = of_weights;
  pieces_ = 0;
  if (of_weights) weights_.set(DNNL_ARG_SCRATCHPAD, scratch_ + pad_at_);
  if (!of_inputs) return;
  if (turned_) {
    T* const turned = reinterpret_cast<T*>(scratch_ + turned_at_);
    turn_weights(spec_, w, turned);
    turned_->set_weights(library, turned, nullptr, scratch_);
  } else {
    to_inputs_.run(library, w, scratch_ + inputs_weights_at_);
    inputs_.set(DNNL_ARG_WEIGHTS, scratch_ + inputs_weights_at_);
    inputs_.set(DNNL_ARG_SCRATCHPAD, scratch_ + inputs_pad_at_);
  }
}

template <class T>
void ConvolutionBackward<T>::run(Library& library, const T* x, const T* dy, T* dx) {
  if (want_weights_) {
    const bool first = pieces_ == 0;
    weights_.set(DNNL_ARG_SRC, x);
    weights_.set(DNNL_ARG_DIFF_DST, dy);
    weights_.set(DNNL_ARG_DIFF_WEIGHTS, at(first ? dw_sum_at_ : dw_at_));
    weights_.set(DNNL_ARG_DIFF_BIAS, at(first ? db_sum_at_ : db_at_));
    weights_.run(library);
    if (!first) {
      add(at(dw_sum_at_), at(dw_at_), at(dw_sum_at_), weights_size_);
      if (spec_.bias) add(at(db_sum_at_), at(db_at_), at(db_sum_at_), spec_.filters);
    }
  }
  ++pieces_;
  if (dx == nullptr) return;
  if (turned_) {
    turned_->run(library, dy, dx);
    return;
  }
  inputs_.set(DNNL_ARG_DIFF_DST, dy);
  inputs_.set(DNNL_ARG_DIFF_SRC, dx);
  inputs_.run(library);
}

template <class T>
void ConvolutionBackward<T>::end(Library& library, float* dw, float* db, bool accumulate) {
  const std::size_t weights = spec_.weights();
  if (dw != nullptr) {
    from_weights_.run(library, at(dw_sum_at_), accumulate ? at(dw_at_) : dw);
    if (accumulate) add(dw, at(dw_at_), dw, weights);
  }
  if (db != nullptr && accumulate) add(db, at(db_sum_at_), db, spec_.filters);
  if (db != nullptr && !accumulate) std::copy_n(at(db_sum_at_), spec_.filters, db);
}

template struct ConvolutionBackward<float>;
template struct ConvolutionBackward<BFloat16>;

}  // namespace lockstep::engine::cpu
