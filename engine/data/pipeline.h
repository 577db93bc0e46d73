// SPDX-License-Identifier: MIT
// Prefetches examples for a replica. The strategy says which *positions* of an epoch a replica
// works on. The pipeline maps positions to examples by an order drawn from (seed, epoch),
// independent of the number of replicas. Prefetching threads serve the requests, which return in
// the order of their making.
//
// Threads: one thread (the replica's) calls request, take and cancel; `threads` others read. `take`
// throws what the data set throws, as an Error that names the example. The data set must outlive
// the pipeline.
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

// Holds a run's position in its data; saved in checkpoints. Batches do not cross the end of an
// epoch.
struct DataPosition {
  std::int64_t epoch = 0;
  std::uint64_t example = 0;  // positions of this epoch that have been used
  bool operator==(const DataPosition&) const = default;
};
// Returns the positions of the next batch of at most `batch` examples.
Range next_batch(const DataPosition& position, std::uint64_t examples, std::uint64_t batch);
DataPosition after_batch(DataPosition position, std::uint64_t examples, std::uint64_t batch);
// Returns replica `rank`'s part of a global batch. The parts cover the batch exactly, and equal
// shares differ by at most one example. `shares` weighs them, one entry per rank; empty: all equal.
Range share_of(Range batch, int rank, int ranks, const std::vector<std::uint64_t>& shares = {});

// Returns zeroed memory for batches. Without it, batches use the heap.
using BatchMemory = std::function<Buffer(std::size_t bytes)>;

// Holds rows one after the other in one block, with room for more words at its end. A device can
// therefore take it in one copy (engine/ops/ops.h: HostBatch).
struct Batch {
  static constexpr std::size_t kRoom = 128;  // bytes
  std::span<float> inputs, targets;
  std::span<std::int64_t> ids = {};  // the example of each row
  std::size_t rows() const { return ids.size(); }
  // Makes room for `rows` rows without keeping their content. Allocates if the memory is too small.
  void resize(std::size_t rows, std::size_t input_elements, std::size_t target_columns,
              const BatchMemory& memory);
  // Returns the block, or an empty span if the memory is the heap's.
  std::span<std::byte> block() const { return shared ? used : std::span<std::byte>(); }

  Buffer memory = {};
  std::span<std::byte> used = {};  // the part of `memory` in use
  bool shared = false;             // whether BatchMemory gave it
};

struct PipelineOptions {
  std::uint64_t seed = 0;
  bool shuffle = true;
  bool plain = false;  // uses `Dataset::read` in every epoch
  int threads = 1;
  bool in_place = false;  // `take` reads, no threads; for measurements, tests
  BatchMemory memory = {};
  // `take` waits for at most this time, then throws Error(kTimeout).
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
};

class Pipeline {
 public:
  Pipeline(const Dataset& dataset, PipelineOptions options);
  ~Pipeline();  // drops all requests and joins
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;
  void request(std::int64_t epoch, Range positions);
  // Waits for the oldest request and returns it, filled. It is valid until the next `take`; its
  // memory is reused only for a request made after that. Steady state allocates nothing.
  const Batch& take();
  std::size_t outstanding() const;
  void cancel();  // drops all requests

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::engine
