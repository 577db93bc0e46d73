// SPDX-License-Identifier: MIT
// Brings examples to a replica ahead of time. The strategy says which *positions* of an epoch a
// replica works on; the pipeline knows which example stands where: an order drawn from (seed,
// epoch), so it depends on no number of replicas. Requests are served by prefetching threads and
// come back in the order in which they were made.
//
// Threads: request, take and cancel from one thread (the replica's); reading happens on `threads`
// others. What a data set throws is thrown by `take`, as an Error that names the example. The data
// set outlives the pipeline.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/device/buffer.h"

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

// Memory for batches, zeroed; else the heap's.
using BatchMemory = std::function<Buffer(std::size_t bytes)>;

// Rows, one behind the other. All of it lies in one block, with room for more words at its end, so
// that a device can take it in one copy (engine/ops/ops.h: HostBatch).
struct Batch {
  static constexpr std::size_t kRoom = 128;  // bytes
  std::span<float> inputs, targets;
  std::span<std::int64_t> ids = {};  // which example each row is
  std::size_t rows() const { return ids.size(); }
  // So many rows; what they hold is not kept. Takes memory where the last ones had less.
  void resize(std::size_t rows, std::size_t input_elements, std::size_t target_columns,
              const BatchMemory& memory);
  // Empty where the memory is the heap's.
  std::span<std::byte> block() const { return shared ? used : std::span<std::byte>(); }

  Buffer memory = {};
  std::span<std::byte> used = {};  // of it
  bool shared = false;             // it is BatchMemory's
};

struct PipelineOptions {
  std::uint64_t seed = 0;
  bool shuffle = true;
  bool plain = false;  // examples as `Dataset::read` gives them, whatever the epoch
  int threads = 1;
  bool in_place = false;  // read in `take`, no threads: for measurements and tests
  BatchMemory memory = {};
  // `take` waits so long, then throws Error(kTimeout).
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
};

class Pipeline {
 public:
  Pipeline(const Dataset& dataset, PipelineOptions options);
  ~Pipeline();  // drops what was requested and joins
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;
  void request(std::int64_t epoch, Range positions);
  // The oldest request, filled. Waits; valid until the next `take`, and its memory is written again
  // only for a request that is made after that. Steady state allocates nothing.
  const Batch& take();
  std::size_t outstanding() const;
  void cancel();  // forget all requests

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::engine
