// SPDX-License-Identifier: MIT
#include "engine/train/work_queue.h"

namespace lockstep::engine {

std::optional<Work> WorkQueue::next() {
  while (!over_ && asked_ - given_ < kAhead) {
    const std::optional<Work> work = strategy_.next(replica_);
    over_ = !work.has_value();
    if (over_) break;
    for (int part = 0; part < parts_; ++part) {
      pipeline_.request(work->epoch, share_of(work->local_batch, part, parts_));
    }
    ahead_[asked_++ % kAhead] = *work;
  }
  if (asked_ == given_) return {};
  return ahead_[given_++ % kAhead];
}

PipelineOptions pipeline_options(std::uint64_t seed, bool shuffle, int threads) {
  return {.seed = seed, .shuffle = shuffle, .threads = threads, .in_place = threads == 0};
}

LoopBytes loop_bytes(const Dataset& data) {
  const std::size_t numbers = data.input_shape().elements() + data.target_columns();
  constexpr std::size_t kOrders = 2;  // requests cross the border of two epochs
  return {(WorkQueue::kAhead + 1) * (numbers * sizeof(float) + sizeof(std::int64_t)),
          std::size_t(data.size()) * kOrders * sizeof(std::uint64_t)};
}

}  // namespace lockstep::engine
