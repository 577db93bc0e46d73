// SPDX-License-Identifier: MIT
// Convolutions by cuDNN. The first call of a shape takes the plan from the cache. If there is none,
// it runs each of the library's best plans a few times on the caller's stream, and keeps the
// fastest. This waits and takes milliseconds, or seconds if the library compiles a plan. It must
// not be captured into a CUDA graph; later calls may be. Later calls make one small object and
// queue the plan in some microseconds. The fastest plan is measured, and the last bits of results
// depend on it: they are equal for all users of one cache. Operands are aligned to
// ConvolutionGraph::kAlignment. Use it on the replica's computing thread. Throws Error(kDevice)
// with the library's call and message, and Error(kMemory).
#pragma once
#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/cuda/convolution_graph.h"
#include "engine/cuda/memory.h"
#include "engine/cuda/plan_cache.h"

namespace lockstep::engine::cuda {

class CudnnConvolutions final : public Convolutions {
 public:
  // Creates a handle. `cache` must be for this version of the library and this kind of GPU. `tf32`:
  // float32 products may be rounded to TF32. `candidates`: number of plans to time, at least 1. All
  // references must outlive this object.
  CudnnConvolutions(const Cudnn& library, const Context& context, Memory& memory, PlanCache& cache,
                    bool tf32, std::size_t candidates);
  // Requires that all work it queued is done.
  ~CudnnConvolutions() override;
  CudnnConvolutions(const CudnnConvolutions&) = delete;
  CudnnConvolutions& operator=(const CudnnConvolutions&) = delete;

  void run(CudaStream& stream, const Convolution& call, const void* first, const void* second,
           const void* bias, void* target) override;

 private:
  struct Operands {
    const void* first;
    const void* second;
    const void* bias;  // null: none
    void* target;
  };
  struct Hash {
    std::size_t operator()(const Convolution& call) const;
  };
  void run_now(CudaStream& stream, const Convolution& call, const void* first, const void* second,
               const void* bias, void* target);
  ConvolutionPlan choose(CudaStream& stream, const Convolution& call, const Operands& operands);
  ConvolutionPlan fastest(CudaStream& stream, const Convolution& call,
                          std::vector<ConvolutionPlan> plans, Operands operands, void* scratch);
  Buffer room_for(std::vector<ConvolutionPlan>& plans, const std::string& problem);
  bool has_room(const ConvolutionPlan& plan, const std::string& problem);
  cudnnStatus_t queue(const ConvolutionPlan& plan, const Operands& operands, void* workspace) const;
  void* workspace(std::size_t bytes);

  const Cudnn* library_;
  const Context* context_;
  Memory* memory_;
  PlanCache* cache_;
  bool tf32_;
  std::size_t candidates_;
  cudnnHandle_t handle_ = nullptr;
  std::unordered_map<Convolution, ConvolutionPlan, Hash> plans_;
  // Workspaces of growing size, of which the last is in use. Earlier CUDA graphs still write to the
  // others.
  std::vector<Buffer> workspaces_;
};

}  // namespace lockstep::engine::cuda
