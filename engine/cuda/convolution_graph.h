// SPDX-License-Identifier: MIT
// One convolution as cuDNN's operation graph, and the plans that the library has for it. Forward is
// one graph with bias and ReLU, which the library is told to let NaN through. Tensors are NHWC and
// aligned to kAlignment bytes; sums, and what lies between the operations, are float32. Making a
// graph costs microseconds, a plan up to seconds where the library compiles it. A plan can be built
// again from its engine and knobs, for the same graph. One thread. Errors: Error(kDevice) with the
// library's words.
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

// Something that cuDNN can run, what it was made from, and the bytes of workspace that it needs.
struct ConvolutionPlan {
  EngineChoice choice;
  std::vector<CudnnDescriptor> parts;  // of the configuration
  CudnnDescriptor configuration;
  CudnnDescriptor plan;
  std::size_t workspace = 0;
};

// For which GPU cuDNN is asked: that of a handle, or, without a GPU, one that is described.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  const CudnnDescriptor* device = nullptr;
};

class ConvolutionGraph {
 public:
  static constexpr std::size_t kAlignment = 16;                          // bytes, of each operand
  static constexpr std::size_t kMostWorkspace = std::size_t(256) << 20;  // bytes, of a plan

  // The numbers of the operands, in the order in which Convolutions::run has them.
  enum Operand : std::int64_t { kFirst, kSecond, kBias, kTarget };

  // `tf32`: products of float32 may be rounded to 10 bits of fraction before they are added.
  ConvolutionGraph(const Cudnn& library, const Convolution& call, CudnnTarget target, bool tf32);

  // At most so many, what the library thinks best first: those that give the same bits every time,
  // keep to the precision, and need at most kMostWorkspace. At least one, or Error(kDevice).
  std::vector<ConvolutionPlan> plans(std::size_t most) const;

  // The one of a choice; none where the library cannot build it, or it is not one of those above.
  std::optional<ConvolutionPlan> plan(const EngineChoice& choice) const;

  // A line of all that plans depend on, but the library and the GPU.
  std::string problem() const;

 private:
  using Extents = std::array<std::int64_t, 4>;  // as cuDNN counts them: N, C, H, W
  // Parts of the graph: a tensor that lies in memory, one between two operations, and the steps of
  // the kernel.
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
  // None where it is not allowed, or the library cannot do it.
  std::optional<ConvolutionPlan> plan_of(CudnnDescriptor configuration) const;
  void add_plans(cudnnBackendHeurMode_t mode, std::size_t most,
                 std::vector<ConvolutionPlan>& plans) const;

  const Cudnn* library_;
  Convolution call_;
  CudnnTarget target_;
  bool tf32_;
  std::int64_t numbers_ = kTarget + 1;                // of tensors, given so far
  std::deque<CudnnDescriptor> parts_;                 // what the graph is made of
  std::vector<cudnnBackendDescriptor_t> operations_;  // of the parts
  CudnnDescriptor graph_;
};

}  // namespace lockstep::engine::cuda
