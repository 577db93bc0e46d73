// SPDX-License-Identifier: MIT
#include "engine/cuda/cudnn_convolutions.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::engine::cuda {
namespace {

constexpr int kTimedRuns = 3;

std::size_t target_bytes(const Convolution& call) {
  const ConvolutionSpec& spec = call.spec;
  const bool weights = call.pass == Convolution::Pass::kGradientOfWeights;
  return (weights ? spec.weights() : call.rows * spec.inputs()) * size_of(call.dtype);
}

}  // namespace

CudnnConvolutions::CudnnConvolutions(const Cudnn& library, const Context& context, Memory& memory,
                                     PlanCache& cache, bool tf32, std::size_t candidates)
    : library_(&library),
      context_(&context),
      memory_(&memory),
      cache_(&cache),
      tf32_(tf32),
      candidates_(candidates) {
  context.use();
  library.check(library.create(&handle_), "cudnnCreate");
}

CudnnConvolutions::~CudnnConvolutions() {
  plans_.clear();
  if (!context_->stuck()) library_->destroy(handle_);
}

void CudnnConvolutions::run(CudaStream& stream, const Convolution& call, const void* first,
                            const void* second, const void* bias, void* target) {
  if (call.rows == 0) {  // cuDNN has no empty tensors
    if (call.pass == Convolution::Pass::kGradientOfWeights && !call.accumulate)
      stream.fill(target, 0, target_bytes(call));
    return;
  }
  stream.queue([&] { run_now(stream, call, first, second, bias, target); });
}

void CudnnConvolutions::run_now(CudaStream& stream, const Convolution& call, const void* first,
                                const void* second, const void* bias, void* target) {
  context_->use();
  library_->check(library_->set_stream(handle_, stream.handle()), "cudnnSetStream");
  const bool biased = call.pass == Convolution::Pass::kForward && call.spec.bias;
  const Operands operands{first, second, biased ? bias : nullptr, target};
  auto found = plans_.find(call);
  if (found == plans_.end()) {
    if (stream.recorded() != nullptr) {
      fail(Code::kDevice,
           "cuda:{}: a convolution of a new shape is not chosen while it is recorded",
           context_->index());
    }
    found = plans_.emplace(call, choose(stream, call, operands)).first;
  }
  const ConvolutionPlan& plan = found->second;
  library_->check(queue(plan, operands, workspace(plan.workspace)), "cudnnBackendExecute");
}

ConvolutionPlan CudnnConvolutions::choose(CudaStream& stream, const Convolution& call,
                                          const Operands& operands) {
  const ConvolutionGraph graph(*library_, call, {.handle = handle_}, tf32_);
  std::optional<ConvolutionPlan> plan;
  const auto build = [&](const std::string& text) {
    const std::optional<EngineChoice> choice = engine_choice_of(text);
    std::optional<ConvolutionPlan> built = choice ? graph.plan(*choice) : std::nullopt;
    if (!built || !has_room(*built, graph.problem())) return false;
    plan = std::move(built);
    return true;
  };
  bool lasting = true;
  const auto find = [&] {
    std::vector<ConvolutionPlan> plans = graph.plans(candidates_);
    const std::size_t all = plans.size();
    const Buffer scratch = room_for(plans, graph.problem());
    lasting = plans.size() == all;
    plan = fastest(stream, call, std::move(plans), operands, scratch.data());
    return to_text(plan->choice);
  };
  cache_->choose(graph.problem(), build, find, lasting);
  return std::move(*plan);
}

// Allocates the largest workspace that fits into the GPU's memory. Removes plans that need more,
// with a warning. Throws Error(kMemory) if none is left.
Buffer CudnnConvolutions::room_for(std::vector<ConvolutionPlan>& plans,
                                   const std::string& problem) {
  const std::size_t all = plans.size();
  for (std::string shortage;;) {
    std::size_t most = 0;
    for (const ConvolutionPlan& plan : plans) most = std::max(most, plan.workspace);
    try {
      Buffer room = memory_->allocate(most, "workspace of convolutions while they are timed");
      if (plans.size() < all)
        cache_->log().warning(
            "{} of {} kernels for the {} are left out, since their workspace has no room; the "
            "fastest of the others is taken in this run ({})",
            all - plans.size(), all, problem, shortage);
      return room;
    } catch (const Error& error) {
      if (error.code() != Code::kMemory) throw;
      std::erase_if(plans, [&](const ConvolutionPlan& plan) { return plan.workspace == most; });
      if (plans.empty()) throw;
      if (shortage.empty()) shortage = error.what();
    }
  }
}

bool CudnnConvolutions::has_room(const ConvolutionPlan& plan, const std::string& problem) {
  try {
    workspace(plan.workspace);
    return true;
  } catch (const Error& error) {
    if (error.code() != Code::kMemory) throw;
    cache_->log().warning("the workspace of the {} has no room ({})", problem, error.what());
    return false;
  }
}

// Returns the fastest plan. Sources are only read, so the caller's are used. A target that
// accumulates must not be written twice, so a temporary one replaces it.
ConvolutionPlan CudnnConvolutions::fastest(CudaStream& stream, const Convolution& call,
                                           std::vector<ConvolutionPlan> plans, Operands operands,
                                           void* scratch) {
  wait_for_all(*context_, CudaStream::kDeadline);  // nothing else runs during the timing
  Buffer instead;
  if (call.accumulate) {
    instead = memory_->allocate(target_bytes(call), "target of convolutions while they are timed");
    operands.target = instead.data();
  }
  const Event begin(*context_, true), end(*context_, true);
  ConvolutionPlan* best = nullptr;
  cudnnStatus_t refusal = CUDNN_STATUS_SUCCESS;
  double least = std::numeric_limits<double>::infinity();
  for (ConvolutionPlan& plan : plans) {
    // The first run loads the kernel. A plan that cannot run is skipped.
    const cudnnStatus_t status = queue(plan, operands, scratch);
    if (status != CUDNN_STATUS_SUCCESS) {
      refusal = status;
      continue;
    }
    stream.record(begin);
    for (int run = 0; run < kTimedRuns; ++run) {
      library_->check(queue(plan, operands, scratch), "cudnnBackendExecute");
    }
    stream.record(end);
    stream.synchronize();
    const double time = milliseconds_between(*context_, begin, end);
    if (time < least) {
      least = time;
      best = &plan;
    }
  }
  if (best == nullptr) library_->check(refusal, "cudnnBackendExecute");
  invariant(best != nullptr, "a plan that ran has a time");
  return std::move(*best);
}

cudnnStatus_t CudnnConvolutions::queue(const ConvolutionPlan& plan, const Operands& operands,
                                       void* workspace) const {
  using Graph = ConvolutionGraph;
  const auto address = [](const void* data) {
    invariant(reinterpret_cast<std::uintptr_t>(data) % Graph::kAlignment == 0,
              "operands of a convolution are aligned to 16 bytes");
    return const_cast<void*>(data);
  };
  std::array<std::int64_t, 4> numbers{Graph::kFirst, Graph::kSecond, Graph::kTarget, Graph::kBias};
  std::array<void*, 4> addresses{address(operands.first), address(operands.second),
                                 address(operands.target), address(operands.bias)};
  const std::size_t count = operands.bias == nullptr ? 3 : 4;
  CudnnDescriptor pack(*library_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const std::int64_t>(numbers).first(count))
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::span<void* const>(addresses).first(count))
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
      .finalize();
  return library_->execute(handle_, plan.plan.handle(), pack.handle());
}

void* CudnnConvolutions::workspace(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  if (workspaces_.empty() || workspaces_.back().bytes() < bytes) {
    workspaces_.push_back(memory_->allocate(bytes, "workspace of convolutions"));
  }
  return workspaces_.back().data();
}

std::size_t CudnnConvolutions::Hash::operator()(const Convolution& call) const {
  const ConvolutionSpec& s = call.spec;
  std::size_t sum = 0;
  for (const std::size_t part :
       {std::size_t(call.pass), std::size_t(call.dtype), std::size_t(call.accumulate), call.rows,
        s.height, s.width, s.channels, s.filters, s.kernel_height, s.stride, s.padding}) {
    sum = sum * 1000003 + part;
  }
  return sum;
}

}  // namespace lockstep::engine::cuda
