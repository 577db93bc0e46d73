// SPDX-License-Identifier: MIT
#include "strategies/synchronous/graph_recorder.h"

#include <utility>

#include "engine/base/error.h"

namespace lockstep::strategies {

GraphRecorder::GraphRecorder(std::vector<engine::Recorder*> replicas, const collectives::Team& team,
                             std::chrono::milliseconds deadline)
    : replicas_(std::move(replicas)),
      others_(replicas_.begin() + 1, replicas_.end()),
      team_(team),
      seen_(replicas_.size()),
      deadline_(deadline),
      waited_(replicas_.size(), 0),
      passed_(replicas_.size(), 0) {}

// All replicas decide by the same values, so their decisions are equal.
GraphRecorder::Next GraphRecorder::next(std::size_t local, int part, std::size_t global_batch,
                                        std::int64_t local_batch) {
  if (!refusal().empty()) return Next::kQueue;
  Seen& seen = seen_[local][part];
  if (global_batch > seen.global_batch) seen = {global_batch, local_batch};
  if (global_batch < seen.global_batch) return Next::kQueue;
  engine::invariant(seen.local_batch == local_batch, "equal batches have equal shares");
  if (seen.recorded) return Next::kRepeat;
  if (seen.times++ < kBefore) return Next::kQueue;
  seen.recorded = true;
  return Next::kRecord;
}

void GraphRecorder::begin(std::size_t local, int part) {
  // No replica has work left for which the capture would wait.
  gather(local);
  if (is_first(local)) replicas_[0]->begin(part, nullptr);
  release(local);
  if (!is_first(local)) replicas_[local]->begin(part, replicas_[0]);
}

bool GraphRecorder::end(std::size_t local) {
  replicas_[local]->leave();
  gather(local);
  if (is_first(local)) {
    std::string why = replicas_[0]->end(others_);
    const std::scoped_lock lock(mutex_);
    refusal_ = std::move(why);
  }
  release(local);
  return refusal().empty();
}

void GraphRecorder::repeat(std::size_t local, int part) {
  replicas_[local]->ready();
  gather(local);
  if (is_first(local)) {
    replicas_[0]->repeat(part, others_);
    const std::scoped_lock lock(mutex_);
    ++repeated_;
  }
  release(local);
  if (!is_first(local)) replicas_[local]->follow(part, *replicas_[0]);
}

void GraphRecorder::gather(std::size_t local) {
  if (others_.empty()) return;
  std::unique_lock lock(mutex_);
  if (!is_first(local)) {
    ++came_;
    return changed_.notify_all();
  }
  gathered_ += others_.size();
  wait(lock, local, "other replicas", [&] { return came_ >= gathered_; });
}

void GraphRecorder::release(std::size_t local) {
  if (others_.empty()) return;
  std::unique_lock lock(mutex_);
  if (is_first(local)) {
    ++released_;
    return changed_.notify_all();
  }
  const std::uint64_t mine = ++passed_[local];
  wait(lock, local, "the first replica", [&] { return released_ >= mine; });
}

// Polls the team, since its stop does not wake this wait.
template <class Reached>
void GraphRecorder::wait(std::unique_lock<std::mutex>& lock, std::size_t local, const char* whom,
                         Reached reached) {
  if (reached()) return;
  constexpr std::chrono::milliseconds kLook{20};
  const auto begin = engine::Clock::now();
  while (!changed_.wait_for(lock, kLook, reached)) {
    if (team_.stopped()) team_.rethrow();
    if (engine::Clock::now() - begin < deadline_) continue;
    engine::fail(engine::Code::kTimeout, "a recorded step waited {} ms for {} of this process",
                 deadline_.count(), whom);
  }
  waited_[local] += std::chrono::duration<double>(engine::Clock::now() - begin).count();
}

double GraphRecorder::waited_seconds(std::size_t local) const {
  const std::scoped_lock lock(mutex_);
  return waited_[local];
}

void GraphRecorder::set_deadline(std::chrono::milliseconds deadline) {
  const std::scoped_lock lock(mutex_);
  deadline_ = deadline;
}

std::string GraphRecorder::refusal() const {
  const std::scoped_lock lock(mutex_);
  return refusal_;
}

std::int64_t GraphRecorder::repeated() const {
  const std::scoped_lock lock(mutex_);
  return repeated_;
}

}  // namespace lockstep::strategies
