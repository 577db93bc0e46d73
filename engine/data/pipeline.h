// SPDX-License-Identifier: MIT
// Brings examples to a replica ahead of time. The strategy says which *positions* of an epoch a
// replica works on; the pipeline knows which example stands where: an order drawn from (seed,
// epoch), so it depends on no number of replicas. Requests are served by prefetching threads and
// come back in the order in which they were made.
//
// Threads: request, take and cancel from one thread (the replica's); reading happens on `threads`
// others. An exception of a reader is rethrown by `take`. The data set outlives the pipeline.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/data/dataset.h"

namespace lockstep::engine {

// Where a run stands in its data; saved in checkpoints. Batches do not cross the end of an epoch.
struct DataPosition {
  std::int64_t epoch = 0;
  std::uint64_t example = 0;  // positions of this epoch that have been used
  bool operator==(const DataPosition&) const = default;
};
// The positions of the next batch of at most `batch` examples.
Range next_batch(const DataPosition& position, std::uint64_t examples, std::uint64_t batch);
DataPosition after_batch(DataPosition position, std::uint64_t examples, std::uint64_t batch);
// Replica `rank`'s part of a batch: parts differ by at most one example and cover it exactly;
// `shares` (one a rank; empty: all equal) weighs them.
Range share_of(Range batch, int rank, int ranks, const std::vector<std::uint64_t>& shares = {});

struct Batch {
  std::vector<float> inputs, targets;  // rows, one behind the other
  std::vector<std::int64_t> ids = {};  // which example each row is
  std::size_t rows() const { return ids.size(); }
};

struct PipelineOptions {
  std::uint64_t seed = 0;
  bool shuffle = true;
  bool plain = false;  // examples as `Dataset::read` gives them, whatever the epoch
  int threads = 1;
  bool in_place = false;  // read in `take`, no threads: for measurements and tests
  // `take` waits so long, then throws Error(kTimeout).
  std::chrono::milliseconds patience = std::chrono::minutes(10);
};

class Pipeline {
 public:
  Pipeline(const Dataset& dataset, PipelineOptions options);
  ~Pipeline();  // drops what was requested and joins
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;
  void request(std::int64_t epoch, Range positions);
  // The oldest request, filled. Waits; valid until the next `take`. Steady state allocates nothing.
  const Batch& take();
  std::size_t outstanding() const;
  void cancel();  // forget all requests

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::engine
