// SPDX-License-Identifier: MIT
// oneDNN descriptors of one convolution. `type` is the element type of x, y and w; gradients of
// weights and bias are always float32 because they are sums. Plain values; thread-safe.
#pragma once
#include <oneapi/dnnl/dnnl.hpp>

#include <cstddef>
#include <string>

#include "engine/cpu/library.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cpu {

struct ConvolutionPlan {
  dnnl::memory::desc x, y;     // NHWC
  dnnl::memory::desc w_plain;  // [filters, kernel_height, kernel_width, channels]
  dnnl::memory::desc w_any;    // layout chosen by the library
  dnnl::memory::desc b;        // empty without a bias
  dnnl::memory::desc dw_plain, dw_any, db;
  dnnl::memory::dims strides, padding;  // padding: on both sides
  Activation activation = Activation::kNone;
  std::string name;  // for `implementations`
};

ConvolutionPlan convolution_plan(const ConvolutionSpec& spec, std::size_t rows,
                                 dnnl::memory::data_type type);

// Returns the convolution whose forward pass gives the gradient of the input of `spec`, which has
// stride 1. Its input is dy, padded by what the kernel lacks. Its weights are those of `spec`,
// rotated by 180 degrees, with channels and filters exchanged.
ConvolutionPlan input_gradient_plan(const ConvolutionSpec& spec, std::size_t rows,
                                    dnnl::memory::data_type type);

// Computes its weights: turned[c][kh - 1 - ky][kw - 1 - kx][f] = w[f][ky][kx][c].
template <class T>
void turn_weights(const ConvolutionSpec& spec, const T* w, T* turned);

dnnl::convolution_forward::primitive_desc forward_primitive(const Library& library,
                                                            const ConvolutionPlan& plan);

// Runs a forward convolution: converts the weights' layout once, then takes pieces.
class ForwardCall {
 public:
  ForwardCall(Library& library, const ConvolutionPlan& plan, ScratchLayout& layout);
  // `scratch` has the layout made at construction.
  void set_weights(Library& library, const void* w, const void* b, std::byte* scratch);
  void run(Library& library, const void* x, void* y);

 private:
  Call call_;
  Reorder reorder_;
  std::size_t weights_at_ = 0, pad_at_ = 0;
};

}  // namespace lockstep::engine::cpu
