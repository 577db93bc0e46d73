// SPDX-License-Identifier: MIT
// What workers ask of a training job's shards, and what they are answered. Plain values; bodies
// hold on to their bytes by owners.
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

// Rows of one shard, by their number within the variable, ascending.
struct ShardRows {
  std::uint32_t shard = 0;
  std::vector<std::uint64_t> rows = {};
};

struct PullOrder {
  std::uint64_t generation = 0;        // 0: any
  std::vector<ShardRange> parts = {};  // none of them shares elements with another
  std::optional<ShardRows> rows = {};  // instead of parts
  std::int64_t at_least = 0;           // the answer waits until the version is that
  bool bfloat16 = false;               // on the wire
};

struct PushOrder {
  std::uint64_t generation = 0;
  std::uint32_t worker = 0;
  std::uint64_t sequence = 0;  // of this worker's pushes to this server: 1, 2, ...
  std::int64_t step = 0;       // synchronous: the version that the gradient was made for
  std::int64_t pulled = 0;     // the version of the weights that it was made from
  double rate = 0;
  std::vector<ShardRange> parts = {};
  std::optional<ShardRows> rows = {};  // instead of parts
  bool last = false;                   // of this worker's step here
  bool want_weights = false;           // of the parts, after the update
  bool bfloat16 = false;
  std::vector<rpc::Slice> body = {};  // gradients of parts or rows, one behind the other
};

// kKept: waits for others' gradients. kLate: the step is over. kTooStale: dropped.
enum class PushOutcome : std::uint8_t { kApplied, kKept, kLate, kTooStale, kRepeated };

struct ShardAnswer {
  PushOutcome what = PushOutcome::kApplied;  // of a push
  std::int64_t version = 0;
  std::uint64_t staleness = 0;
  std::vector<rpc::Slice> body = {};
  std::optional<engine::Error> error = {};  // nothing else counts then
};
using Answered = std::function<void(ShardAnswer)>;
using CallerPointer = std::shared_ptr<const rpc::Caller>;  // null: one who never goes

// What a job's shards on a server have seen since they were opened.
struct ShardCounts {
  // Pushes answered, by their outcome. A push that completes a part counts as applied.
  std::uint64_t applied = 0, kept = 0, late = 0, too_stale = 0, repeated = 0;
  std::uint64_t pulls = 0, bytes_pulled = 0, bytes_pushed = 0;  // of bodies
  std::uint64_t rows_pulled = 0, rows_pushed = 0;
  // Of each worker's step, when its first push came: version less the pulled one.
  static constexpr std::size_t kHistogram = 17;  // 0, 1, ..., 15, and all above
  std::uint64_t steps = 0, staleness_sum = 0, staleness_most = 0;
  std::uint64_t staleness[kHistogram] = {};
  void add_staleness(std::uint64_t value);
};

}  // namespace lockstep::strategies
