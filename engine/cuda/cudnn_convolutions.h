// SPDX-License-Identifier: MIT
// Convolutions by cuDNN. The first call of a shape takes the plan that the cache has. Where it has
// none, it asks for plans, runs each of the best a few times on the caller's stream, waits for them
// and keeps the fastest: milliseconds, up to seconds where the library compiles a plan. So it must
// not be recorded into a CUDA graph; later calls may be. These make one small object and queue the
// plan: some microseconds. Which plan wins is measured, and the last bits of results depend on it:
// they are the same for all who share a cache. Operands are aligned to
// ConvolutionGraph::kAlignment. The replica's computing thread. Errors: Error(kDevice) with the
// library's call and words; Error(kMemory).
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
  // `cache`: of this version of the library and this kind of GPU. `tf32`: float32 products may be
  // rounded to TF32. `candidates`: plans that are timed, at least one. All of them must outlive
  // this.
  CudnnConvolutions(const Cudnn& library, const Context& context, Memory& memory, PlanCache& cache,
                    bool tf32, std::size_t candidates);
  // All work queued by this must be done.
  ~CudnnConvolutions() override;
  CudnnConvolutions(const CudnnConvolutions&) = delete;
  CudnnConvolutions& operator=(const CudnnConvolutions&) = delete;

  void run(CudaStream& stream, const Convolution& call, const void* first, const void* second,
           const void* bias, void* target) override;

 private:
  struct Operands {
    const void* first;
    const void* second;
    const void* bias;  // null: there is none
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
  // Each larger than the one before; the last is in use. Graphs that were recorded with the others
  // still write to them.
  std::vector<Buffer> workspaces_;
};

}  // namespace lockstep::engine::cuda
