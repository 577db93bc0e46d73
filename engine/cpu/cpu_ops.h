// SPDX-License-Identifier: MIT
// The kernels of cpu:0 for one replica, float32 or bfloat16. They check the operands and pass them
// to the files beside this one. With bfloat16, all tensors of layers have that type (activations,
// weights, and the gradients of both). Sums and statistics are float32 or wider and are rounded
// once, to the nearest, when they are stored. If a gradient is accumulated, the total is rounded.
// Used on the replica's computing thread, except for `reduce`.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "engine/cpu/convolution.h"
#include "engine/cpu/dense.h"
#include "engine/cpu/library.h"
#include "engine/cpu/pooled_convolution.h"
#include "engine/device/device.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cpu {

// Gives information about the kernels of either element type.
class CpuKernels : public Ops {
 public:
  virtual std::span<const std::string> implementations() const = 0;
  virtual std::size_t held() const = 0;  // current bytes
};

template <class T>
class CpuOps final : public CpuKernels {
 public:
  explicit CpuOps(const OpsOptions& options)
      : library_(options.threads),
        dense_(library_, options.kernels),
        convolutions_(library_, options.kernels),
        pooled_(library_, convolutions_) {}
  std::span<const std::string> implementations() const override { return library_.names(); }

  DType dtype() const override { return kType; }
  std::size_t slice_rows() const override { return 8 * std::size_t(library_.threads()); }
  void dense_forward(const StepState* state, const DenseSpec& spec, Tensor x, Tensor w, Tensor b,
                     Tensor y) override;
  void dense_backward(const StepState* state, const DenseSpec& spec, Tensor x, Tensor y, Tensor dy,
                      Tensor w, Tensor dx, Tensor dw, Tensor db, bool accumulate) override;
  void convolution_forward(const StepState* state, const ConvolutionSpec& spec, Tensor x, Tensor w,
                           Tensor b, Tensor y) override;
  void convolution_backward(const StepState* state, const ConvolutionSpec& spec, Tensor x, Tensor y,
                            Tensor dy, Tensor w, Tensor dx, Tensor dw, Tensor db,
                            bool accumulate) override;
  KernelMemory dense_memory(const DenseSpec& spec, std::size_t rows) const override {
    return dense_.memory(spec, rows);
  }
  KernelMemory convolution_memory(const ConvolutionSpec& spec, std::size_t rows) const override {
    return convolutions_.memory(spec, rows);
  }
  KernelMemory pooled_convolution_memory(const PooledConvolutionSpec& spec,
                                         std::size_t rows) const override;
  std::size_t held() const override {
    return library_.held() + convolutions_.held() + pooled_.held();
  }
  std::size_t pool_workspace(const PoolSpec& spec, std::size_t rows) override;
  void pool_forward(const StepState* state, const PoolSpec& spec, Tensor x, Tensor y,
                    std::byte* workspace) override;
  void pool_backward(const StepState* state, const PoolSpec& spec, Tensor dy, Tensor dx,
                     const std::byte* workspace) override;
  std::size_t pooled_convolution_workspace(const PooledConvolutionSpec& spec,
                                           std::size_t rows) override;
  void pooled_convolution_forward(const StepState* state, const PooledConvolutionSpec& spec,
                                  Tensor x, Tensor w, Tensor b, Tensor y,
                                  PooledConvolutionMemory memory) override;
  void pooled_convolution_backward(const StepState* state, const PooledConvolutionSpec& spec,
                                   Tensor x, Tensor dy, Tensor w, Tensor dx, Tensor dw, Tensor db,
                                   PooledConvolutionMemory memory, bool accumulate) override;
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
  static T* of(const Tensor& tensor) { return tensor.as<T>(); }
  // Returns scratch for `count` float32 numbers; null if T is float32.
  float* wide(std::size_t count) {
    if (std::is_same_v<T, float>) return nullptr;
    return reinterpret_cast<float*>(library_.scratch(count * sizeof(float)));
  }

  Library library_;
  DenseLayers<T> dense_;
  Convolutions<T> convolutions_;
  PooledConvolutions<T> pooled_;
};

}  // namespace lockstep::engine::cpu
