// SPDX-License-Identifier: MIT
// The reference kernels, one loop per formula. T is the type of storage (float, double, BFloat16);
// all arithmetic except that of `reduce` is double. Values stored as bfloat16 are rounded to
// float32 first. Members are defined by subject in the headers beside this one and instantiated in
// reference_device.cpp. No state; thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/ops/ops.h"

namespace lockstep::engine {

template <class T>
class ReferenceOps : public Ops {
 public:
  DType dtype() const override { return kType; }

  void dense_forward(const StepState* state, const DenseSpec& spec, Tensor x, Tensor w, Tensor b,
                     Tensor y) override;
  void dense_backward(const StepState* state, const DenseSpec& spec, Tensor x, Tensor y, Tensor dy,
                      Tensor w, Tensor dx, Tensor dw, Tensor db, bool accumulate) override;
  void convolution_forward(const StepState* state, const ConvolutionSpec& spec, Tensor x, Tensor w,
                           Tensor b, Tensor y) override;
  void convolution_backward(const StepState* state, const ConvolutionSpec& spec, Tensor x, Tensor y,
                            Tensor dy, Tensor w, Tensor dx, Tensor dw, Tensor db,
                            bool accumulate) override;

  std::size_t pool_workspace(const PoolSpec& spec, std::size_t rows) override;
  void pool_forward(const StepState* state, const PoolSpec& spec, Tensor x, Tensor y,
                    std::byte* workspace) override;
  void pool_backward(const StepState* state, const PoolSpec& spec, Tensor dy, Tensor dx,
                     const std::byte* workspace) override;

  void batch_norm_sums(const StepState* state, const BatchNormSpec& spec, Tensor x,
                       double* sums) override;
  void batch_norm_forward(const StepState* state, const BatchNormSpec& spec,
                          const BatchNormForward& call) override;
  void batch_norm_gradient_sums(const StepState* state, const BatchNormSpec& spec,
                                const BatchNormBackward& call, Tensor dscale, Tensor dshift,
                                bool accumulate, double* sums) override;
  void batch_norm_backward(const StepState* state, const BatchNormSpec& spec,
                           const BatchNormBackward& call) override;

  void relu(const StepState* state, Tensor x, Tensor y) override;
  void relu_gradient(const StepState* state, Tensor y, Tensor dy, Tensor dx) override;
  void tanh(const StepState* state, Tensor x, Tensor y) override;
  void tanh_gradient(const StepState* state, Tensor y, Tensor dy, Tensor dx) override;
  void add(const StepState* state, Tensor a, Tensor b, Tensor y) override;
  void dropout(const StepState* state, const DropoutSpec& spec, Tensor x, Tensor y) override;

  void embedding_forward(const StepState* state, const EmbeddingSpec& spec,
                         const std::uint32_t* places, Tensor w, Tensor y) override;
  void embedding_backward(const StepState* state, const EmbeddingSpec& spec,
                          const std::uint32_t* places, Tensor dy, Tensor dw,
                          bool accumulate) override;

  void softmax_cross_entropy(const StepState* state, double smoothing, Tensor logits, Tensor target,
                             Tensor dlogits, Tensor losses, Tensor correct) override;
  void squared_error(const StepState* state, Tensor y, Tensor target, Tensor dy,
                     Tensor losses) override;
  void softmax(const StepState* state, Tensor logits, Tensor probabilities) override;
  double batch_sum(const StepState* state, Tensor rows) override;

  void load(const float* from, Tensor x) override;
  std::uint64_t checksum(const std::byte* data, std::size_t bytes,
                         std::size_t offset) const override;
  void reduce(const ReduceArguments& arguments) const override;

 private:
  static constexpr DType kType = dtype_of<T>();
};

}  // namespace lockstep::engine
