// SPDX-License-Identifier: MIT
// One convolution as an operation graph of cuDNN, and the execution plans of the library for it.
// Forward is one graph with bias and ReLU, in which NaN propagates. Tensors are NHWC and aligned to
// kAlignment bytes. Sums and intermediate tensors are float32. Making a graph costs microseconds; a
// plan costs up to seconds if the library compiles it. A plan can be rebuilt from its engine and
// knobs, for the same graph. Not thread-safe. Throws Error(kDevice) with the library's message.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "engine/cuda/convolutions.h"
#include "engine/cuda/cudnn_descriptor.h"
#include "engine/cuda/engine_choice.h"

namespace lockstep::engine::cuda {

// An execution plan, the descriptors it was made from, and the bytes of workspace it needs.
struct ConvolutionPlan {
  EngineChoice choice;
  std::vector<CudnnDescriptor> parts;  // descriptors that the configuration uses
  CudnnDescriptor configuration;
  CudnnDescriptor plan;
  std::size_t workspace = 0;
};

// The GPU that cuDNN plans for: the GPU of a handle, or a described device if there is no GPU.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  const CudnnDescriptor* device = nullptr;
};

class ConvolutionGraph {
 public:
  static constexpr std::size_t kAlignment = 16;                          // bytes, for each operand
  static constexpr std::size_t kMostWorkspace = std::size_t(256) << 20;  // bytes, for a plan

  // Tensor IDs of the operands, in the order of the parameters of Convolutions::run.
  enum Operand : std::int64_t { kFirst, kSecond, kBias, kTarget };

  // `tf32`: factors of float32 products may be rounded to 10 bits of fraction.
  ConvolutionGraph(const Cudnn& library, const Convolution& call, CudnnTarget target, bool tf32);

  // Returns at most `most` plans, the library's favorite first. All of them are deterministic, keep
  // the precision, and need at most kMostWorkspace. Throws Error(kDevice) if there is none.
  std::vector<ConvolutionPlan> plans(std::size_t most) const;

  // Returns the plan of a choice, or none if the library cannot build it or it breaks the rules of
  // `plans`.
  std::optional<ConvolutionPlan> plan(const EngineChoice& choice) const;

  // Returns one line with everything that plans depend on, except the library and the GPU.
  std::string problem() const;

 private:
  using Extents = std::array<std::int64_t, 4>;  // N, C, H, W, in cuDNN's order
  // Make descriptors of the graph: a tensor in memory, a virtual tensor between two operations, and
  // the strides and padding of the kernel.
  const CudnnDescriptor& operand(Operand number, const Extents& extents);
  const CudnnDescriptor& between(const Extents& extents);
  const CudnnDescriptor& tensor(std::int64_t number, const Extents& extents, cudnnDataType_t type,
                                bool in_memory);
  const CudnnDescriptor& steps();
  const CudnnDescriptor& keep(CudnnDescriptor part);

  void add_forward(const Extents& x, const Extents& w, const Extents& y);
  void add_gradient_of_data(const Extents& x, const Extents& w, const Extents& y);
  void add_gradient_of_weights(const Extents& x, const Extents& w, const Extents& y);
  void add_pointwise(cudnnPointwiseMode_t mode, const CudnnDescriptor& x,
                     const CudnnDescriptor* second, const CudnnDescriptor& y);
  bool allowed(const CudnnDescriptor& engine) const;
  EngineChoice choice_of(const CudnnDescriptor& engine, const CudnnDescriptor& configuration) const;
  // Returns none if the plan is not allowed or the library cannot build it.
  std::optional<ConvolutionPlan> plan_of(CudnnDescriptor configuration) const;
  void add_plans(cudnnBackendHeurMode_t mode, std::size_t most,
                 std::vector<ConvolutionPlan>& plans) const;

  const Cudnn* library_;
  Convolution call_;
  CudnnTarget target_;
  bool tf32_;
  std::int64_t numbers_ = kTarget + 1;                // next tensor ID
  std::deque<CudnnDescriptor> parts_;                 // descriptors that the graph uses
  std::vector<cudnnBackendDescriptor_t> operations_;  // handles among the parts
  CudnnDescriptor graph_;
};

}  // namespace lockstep::engine::cuda
