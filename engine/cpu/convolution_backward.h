// SPDX-License-Identifier: MIT
// The gradients of one convolution of T (float or BFloat16), in pieces of a fixed number of rows.
// Gradients of weights and bias are float32. Between `begin` and `end`, those of the weights are
// summed in the library's layout in scratch memory. Not thread-safe.
#pragma once
#include <cstddef>
#include <optional>

#include "engine/cpu/convolution_plan.h"

namespace lockstep::engine::cpu {

template <class T>
struct ConvolutionBackward {
 public:
  ConvolutionBackward(Library& library, const ConvolutionSpec& spec, std::size_t rows);
  void begin(Library& library, const T* w, bool of_inputs, bool of_weights);
  // `dx` may be null.
  void run(Library& library, const T* x, const T* dy, T* dx);
  // Writes the sums, or adds them if `accumulate`. Either may be null.
  void end(Library& library, float* dw, float* db, bool accumulate);

 private:
  void plan_inputs(Library& library);
  void plan_weights(Library& library);
  float* at(std::size_t place) const { return reinterpret_cast<float*>(scratch_ + place); }

  ConvolutionSpec spec_;
  std::size_t rows_;
  ScratchLayout layout_;
  std::byte* scratch_ = nullptr;  // valid from begin to end
  bool want_weights_ = false;
  std::size_t pieces_ = 0;  // since begin

  // The gradient of the input, by `turned_` or `inputs_`; planned when first needed.
  std::optional<ForwardCall> turned_;
  std::size_t turned_at_ = 0;
  Call inputs_;
  Reorder to_inputs_;
  std::size_t inputs_weights_at_ = 0, inputs_pad_at_ = 0;

  // The gradients of weights and bias of a piece, and their sums.
  Call weights_;
  Reorder from_weights_;
  std::size_t weights_size_ = 0;  // elements in the library's layout
  std::size_t pad_at_ = 0, dw_at_ = 0, dw_sum_at_ = 0, db_at_ = 0, db_sum_at_ = 0;
};

}  // namespace lockstep::engine::cpu
