// SPDX-License-Identifier: MIT
// These calls are thread-safe and run on a separate stream, one after the other.
#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/error.h"
#include "engine/cuda/cuda_ops.h"
#include "engine/cuda/kernels/factors.h"
#include "engine/cuda/kernels/reduce.h"
#include "engine/cuda/kernels/sums.h"
#include "engine/ops/checks.h"

namespace lockstep::engine::cuda {
namespace {

Sources sources_of(const ReduceArguments& a) {
  invariant(a.from.size() <= kMostPlaces, "a reduction of more sources than a kernel takes");
  Sources sources{.count = unsigned(a.from.size())};
  std::copy(a.from.begin(), a.from.end(), sources.at.begin());
  return sources;
}

Targets targets_of(const ReduceArguments& a) {
  invariant(a.to.size() <= kMostPlaces, "a reduction into more targets than a kernel takes");
  Targets targets{.count = unsigned(a.to.size())};
  std::copy(a.to.begin(), a.to.end(), targets.at.begin());
  return targets;
}

UpdateTerms terms_of(const ReduceArguments& a, const StepState* state) {
  UpdateTerms terms;
  if (a.epilogue != Epilogue::kUpdate) return terms;
  terms.rule = *a.update.rule;
  terms.state = state;
  terms.scale = a.scale;
  terms.local_rate = a.update.local_rate;
  terms.decays = a.update.decays;
  terms.boundary_count = unsigned(a.update.boundaries.size());
  std::copy(a.update.boundaries.begin(), a.update.boundaries.end(), terms.boundaries.begin());
  terms.weight = a.update.weight;
  std::copy(a.update.slots.begin(), a.update.slots.end(), terms.slots.begin());
  terms.master = reinterpret_cast<float*>(a.update.master);
  terms.factors = a.update.factors;
  terms.found_rate = a.update.found_rate;
  return terms;
}

}  // namespace

void CudaOps::reduce_behind_kernels() {
  stream_.record(beside_.kernels_done);
  const std::scoped_lock lock(beside_.mutex);
  beside_.stream.wait(beside_.kernels_done);
  if (separate_.layers > 0)
    beside_.stream.wait(separate_.done[(separate_.layers - 1) % kMostApart]);
}

void CudaOps::go_behind_reductions() {
  {
    const std::scoped_lock lock(beside_.mutex);
    beside_.stream.record(beside_.reductions_done);
  }
  stream_.wait(beside_.reductions_done);
}

// Returns the event of a number. Events do not move, so they may be used while others are made.
const Event& CudaOps::event(int number) const {
  while (beside_.events.size() <= std::size_t(number)) beside_.events.emplace_back(*context_);
  return beside_.events[std::size_t(number)];
}

void CudaOps::record_event(int number) const {
  const std::scoped_lock lock(beside_.mutex);
  beside_.stream.record(event(number));
}

// The event may have been recorded again since. This then waits for more than necessary, but never
// forever: all of that work is already queued.
void CudaOps::reduce_behind(const Ops& other, int number) const {
  const auto& theirs = static_cast<const CudaOps&>(other);
  const Event* last = nullptr;
  {
    const std::scoped_lock lock(theirs.beside_.mutex);
    last = &theirs.event(number);
  }
  const std::scoped_lock lock(beside_.mutex);
  beside_.stream.wait(*last);
}

void CudaOps::record_event(const Event& shared) const {
  const std::scoped_lock lock(beside_.mutex);
  beside_.stream.record(shared);
}

void CudaOps::reduce_behind(const Event& shared) const {
  const std::scoped_lock lock(beside_.mutex);
  beside_.stream.wait(shared);
}

void CudaOps::wait_for_event(int number) const {
  const Event* last = nullptr;
  {
    const std::scoped_lock lock(beside_.mutex);
    last = &event(number);
  }
  last->synchronize(CudaStream::kDeadline);
}

// Makes this GPU current, since libraries make their calls for the current GPU.
void* CudaOps::reductions_queue() const {
  context_->use();
  return beside_.stream.handle();
}

void CudaOps::set_on_waiting(std::function<void(std::chrono::nanoseconds)> look) {
  context_->set_on_waiting(std::move(look));
}

bool CudaOps::is_done(int number) const {
  const std::scoped_lock lock(beside_.mutex);
  return event(number).done();
}

// Returns the step state for updates on the GPU. The caller holds the mutex.
const StepState* CudaOps::given(const StepState& state) const {
  // A captured step ends before the next step state is written, so its updates read that of the
  // step.
  if (beside_.stream.recorded() != nullptr)
    return reinterpret_cast<const StepState*>(state_.data());
  if (beside_.given != state) {
    beside_.staging.write(beside_.stream, &state, beside_.state.data(), sizeof(StepState));
    beside_.given = state;
  }
  return reinterpret_cast<const StepState*>(beside_.state.data());
}

void CudaOps::find_factors(const FactorArguments& a) const {
  const std::scoped_lock lock(beside_.mutex);
  kernels_->launch(
      beside_.stream, {.blocks = 1, .threads = FindFactors::kThreads},
      FindFactors{*a.rule, given(*a.state), a.squares, a.blocks, a.segments, a.memory});
}

// Sums in the element type use fast kernels; ReduceAny does everything else.
void CudaOps::reduce(const ReduceArguments& a) const {
  check_reduce(a, a.count);
  if (a.count == 0 && a.epilogue != Epilogue::kSquares) return;
  const std::scoped_lock lock(beside_.mutex);
  const Sources from = sources_of(a);
  const Targets to = targets_of(a);
  const StepState* const words = a.epilogue == Epilogue::kUpdate ? given(*a.update.state) : nullptr;
  const bool own = a.dtype == dtype_ && a.op == ReduceOp::kSum && !a.target;
  const bool plain = a.epilogue != Epilogue::kUpdate && a.epilogue != Epilogue::kSquares;
  // In a plain sum each thread processes one access of 16 bytes.
  const std::size_t of_block = own && plain ? kReduceThreads * 16 / size_of(a.dtype) : kBlock;
  const unsigned blocks = reduce_blocks(a.count, of_block, context_->facts().multiprocessors);
  const Grid grid{.blocks = std::max(1u, blocks), .threads = kReduceThreads};
  const double scale = a.epilogue == Epilogue::kScale ? a.scale : 1;
  if (own && a.epilogue == Epilogue::kUpdate) {
    kernels_->launch(beside_.stream, grid, ReduceUpdate{from, to, a.count, terms_of(a, words)});
  } else if (own && a.epilogue == Epilogue::kSquares) {
    kernels_->launch(beside_.stream, grid,
                     ReduceSquares{from, to, a.count, a.squares, a.squares_step});
  } else if (own) {
    kernels_->launch(beside_.stream, grid,
                     ReduceSum{from, to, a.count, scale, a.epilogue == Epilogue::kRound});
  } else {
    kernels_->launch(beside_.stream, grid,
                     ReduceAny{a.dtype, a.target.value_or(a.dtype), a.op, a.epilogue, from, to,
                               a.count, scale, a.squares, a.squares_step, terms_of(a, words)});
  }
}

std::uint64_t CudaOps::checksum(const std::byte* data, std::size_t bytes,
                                std::size_t offset) const {
  if (bytes == 0) return 0;
  const std::scoped_lock lock(beside_.mutex);
  beside_.stream.fill(beside_.word.data(), 0, sizeof(std::uint64_t));
  kernels_->launch(
      beside_.stream, grid_for(bytes / 4),
      Checksum{data, bytes, offset, reinterpret_cast<std::uint64_t*>(beside_.word.data())});
  beside_.stream.copy(beside_.pinned_word.data(), beside_.word.data(), sizeof(std::uint64_t));
  beside_.stream.synchronize();
  std::uint64_t sum = 0;
  std::memcpy(&sum, beside_.pinned_word.data(), sizeof sum);
  return sum;
}

void CudaOps::queue_checksums(const std::byte* data, std::span<const Range> ranges,
                              std::uint64_t* sums) {
  static_assert(sizeof(Range) == 2 * sizeof(std::size_t));
  launch(
      {.blocks = unsigned(ranges.size()), .rows = Checksums::kRows},
      Checksums{data, reinterpret_cast<const std::size_t*>(ranges.data()), size_of(dtype()), sums});
}

}  // namespace lockstep::engine::cuda
