// SPDX-License-Identifier: MIT
// The work of one replica in order, while the examples of the next steps are being read. Used on
// the replica's thread; `next` does not allocate.
#pragma once
#include <array>
#include <cstdint>
#include <optional>

#include "engine/data/pipeline.h"
#include "engine/train/strategy.h"
#include "engine/train/trainer.h"

namespace lockstep::engine {

class WorkQueue {
 public:
  static constexpr std::size_t kAhead = 2;  // steps whose examples are requested early

  // Takes the work from `strategy`. `parts`: micro-batches of a step.
  WorkQueue(Strategy& strategy, Replica& replica, Pipeline& pipeline, int parts)
      : strategy_(strategy), replica_(replica), pipeline_(pipeline), parts_(parts) {}
  // Returns nothing when there is no more work.
  std::optional<Work> next();

 private:
  Strategy& strategy_;
  Replica& replica_;
  Pipeline& pipeline_;
  int parts_;
  bool over_ = false;
  std::array<Work, kAhead> ahead_;
  std::size_t asked_ = 0, given_ = 0;
};

PipelineOptions pipeline_options(std::uint64_t seed, bool shuffle, int threads);

// Returns the memory of a loop over this data set: prefetched batches and the order of its
// examples.
LoopBytes loop_bytes(const Dataset& data);

// Returns the steps that it takes to use so many examples.
inline std::int64_t batches_of_epoch(std::uint64_t examples, std::size_t batch) {
  return std::int64_t((examples + batch - 1) / batch);
}

}  // namespace lockstep::engine
