// SPDX-License-Identifier: MIT
// Requests of workers to the shards of a training job, and the answers. Plain values; bodies share
// ownership of their bytes.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/base/error.h"
#include "strategies/parameter_server/rpc/rpc.h"
#include "strategies/parameter_server/server/job_spec.h"

namespace lockstep::strategies {

// Holds rows of one shard, by their number in the variable, ascending.
struct ShardRows {
  std::uint32_t shard = 0;
  std::vector<std::uint64_t> rows = {};
};

struct PullOrder {
  std::uint64_t generation = 0;        // 0: any
  std::vector<ShardRange> parts = {};  // disjoint
  std::optional<ShardRows> rows = {};  // instead of parts
  // The answer waits for this version.
  std::int64_t at_least = 0;
  bool bfloat16 = false;  // on the wire
};

struct PushOrder {
  std::uint64_t generation = 0;
  std::uint32_t worker = 0;
  // Number of this push among this worker's pushes to this server: 1, 2, ...
  std::uint64_t sequence = 0;
  // Synchronous: the version for which the gradient was computed.
  std::int64_t step = 0;
  // Version of the weights from which the gradient was computed.
  std::int64_t pulled = 0;
  double rate = 0;
  std::vector<ShardRange> parts = {};
  std::optional<ShardRows> rows = {};  // instead of parts
  bool last = false;                   // ends this worker's step here
  bool want_weights = false;           // returns the parts after the update
  bool bfloat16 = false;
  std::vector<rpc::Slice> body = {};  // gradients of parts or rows, concatenated
};

// Names the outcome of a push. kKept: it waits for other gradients. kLate: the step is over.
// kTooStale: dropped.
enum class PushOutcome : std::uint8_t { kApplied, kKept, kLate, kTooStale, kRepeated };

struct ShardAnswer {
  PushOutcome what = PushOutcome::kApplied;  // for pushes only
  std::int64_t version = 0;
  std::uint64_t staleness = 0;
  std::vector<rpc::Slice> body = {};
  std::optional<engine::Error> error = {};  // if set, other members are invalid
};
using Answered = std::function<void(ShardAnswer)>;
using CallerPointer = std::shared_ptr<const rpc::Caller>;  // null: a caller that never leaves

// Counts the requests to a job's shards since they were opened.
struct ShardCounts {
  // Answered pushes by outcome. A push that completes a part counts as applied.
  std::uint64_t applied = 0, kept = 0, late = 0, too_stale = 0, repeated = 0;
  std::uint64_t pulls = 0, bytes_pulled = 0, bytes_pushed = 0;  // bytes of bodies
  std::uint64_t rows_pulled = 0, rows_pushed = 0;
  // Staleness of each worker's step at its first push: the version less the pulled version.
  static constexpr std::size_t kHistogram = 17;  // 0, 1, ..., 15, and larger
  std::uint64_t steps = 0, staleness_sum = 0, staleness_most = 0;
  std::uint64_t staleness[kHistogram] = {};
  void add_staleness(std::uint64_t value);
};

}  // namespace lockstep::strategies
