// SPDX-License-Identifier: MIT
// The shards of one training job on one server: pulls, pushes, start values, restores, snapshots.
//
// Asynchronous: a push is applied at once. Its staleness is the version at the first push of the
// worker's step, less the version that the worker pulled. All pushes of a step share the staleness
// and its consequence: a smaller rate, or the drop of the step. The last push of a step that is not
// dropped raises the version.
//
// Synchronous: gradients wait for each other (contributions.h). Their weights make the sum over all
// workers the gradient of the global batch's mean; a sum of k of n is multiplied by n / k. When all
// parts of all shards are updated the version rises, and pushes must be for the new step. With k =
// n the bits do not depend on the order of arrival. Checkpoints do not contain waiting gradients,
// so save between steps.
//
// The optimizer's step of an element is the number of its updates (of its row, in a sparse shard).
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "strategies/parameter_server/rpc/sequence_table.h"
#include "strategies/parameter_server/server/contributions.h"
#include "strategies/parameter_server/server/named_variables.h"
#include "strategies/parameter_server/server/shard_arrays.h"
#include "strategies/parameter_server/server/shard_orders.h"
#include "strategies/parameter_server/server/version_waiters.h"

namespace lockstep::strategies {

// Holds the shards of a job. Until all elements have a value (assign, load), other calls fail with
// kUnavailable, as do calls with another generation. Refused calls fail with kInvalid, and calls
// without memory with kIo; neither changes anything. If a completed synchronous step fails with
// kIo, the job's shards are closed.
//
// Thread-safe. Pulls run concurrently with each other and with pushes to other shards. Pushes of
// one worker run one after another; pushes of different workers to different shards run
// concurrently. Calls wait only for others' arithmetic. `Answered` is called once, without locks,
// by the caller's thread or by the thread that it waited for.
class TrainingShards {
 public:
  // Requires a checked spec and a share of its memory. `ops` and `budget` must outlive this object.
  // Throws Error(kIo) if memory is short.
  TrainingShards(std::string container, std::uint64_t generation, JobSpec spec,
                 const engine::Ops& ops, const MemoryBudget& budget, MemoryBudget::Share share);
  const JobSpec& spec() const { return arrays_.spec(); }
  std::uint64_t generation() const;
  std::int64_t version() const;
  bool ready() const;

  void pull(PullOrder order, CallerPointer caller, Answered done);
  void push(PushOrder order, CallerPointer caller, Answered done);
  // Sets the values of parts, which `body` holds one after another. Returns the version.
  std::int64_t assign(std::uint64_t generation, const std::vector<ShardRange>& parts,
                      const std::vector<rpc::Slice>& body);
  // Loads the values of a job that is not ready. `fill` gets exclusive access to all shards and
  // writes weights, slots and counts. Afterwards the job is ready, in this generation. If `fill`
  // throws, the error is passed on and the job is not ready. `restored`: the value that restored()
  // returns.
  struct Loaded {
    std::int64_t version = 0;
    std::vector<SequenceTable> sequences = {};  // by worker; others begin at 1
  };
  using Fill = std::function<Loaded(std::span<const std::unique_ptr<VariableShard>>)>;
  void load(std::uint64_t generation, std::int64_t restored, const Fill& fill);
  std::optional<std::int64_t> restored() const;
  // Returns this server's rows of a shard.
  NamedVariables::Value read(std::size_t shard) const;
  // Ends waiting calls, and all later ones, with this error.
  void close(const engine::Error& why);
  void drop_gone();

  struct WorkerStatus {
    std::uint64_t last = 0, lost = 0;             // sequence numbers
    std::optional<engine::Clock::time_point> at;  // time of its last push
  };
  struct Status {
    std::uint64_t generation = 0;
    std::int64_t version = 0;
    bool ready = false;
    ShardCounts counts = {};
    std::vector<WorkerStatus> workers = {};
    std::size_t waiting_calls = 0, waiting_parts = 0;
  };
  Status status() const;

  // Holds the state at one moment between pushes. Arrays are on loan and cost memory only when they
  // change.
  struct Snapshot {
    struct Held {
      std::vector<rpc::Slice> weights;  // ChunkedArray::kChunk elements each
      std::vector<std::vector<rpc::Slice>> slots;
      std::vector<RangeValues::Run> updates;  // dense shards only
      std::vector<std::int32_t> row_updates;
    };
    std::int64_t version = 0;
    std::vector<Held> shards;
    std::vector<SequenceTable::Ranges> sequences;  // by worker
  };
  Snapshot snapshot(std::uint64_t generation);
  // Covers everything that a checkpoint contains, and the number of waiting parts.
  std::uint64_t checksum();

 private:
  struct Worker {
    // Held during a push; the members below are guarded by the shards' mutex.
    std::mutex turn;
    SequenceTable sequences;
    MemoryBudget::Share share;  // memory of the sequences
    bool began = false;         // a step has begun
    std::int64_t pulled = 0, step = 0;
    std::uint64_t ended = 0;  // number of its last push; 0: open
    std::uint64_t staleness = 0;
    std::optional<engine::Clock::time_point> at;
    bool goes_on(const PushOrder& order) const;
  };
  std::shared_lock<std::shared_mutex> enter();  // locks the gate for a push
  void usable(std::uint64_t generation) const;
  void assignable(std::uint64_t generation) const;

  ShardAnswer push_asynchronous(const PushOrder& order, Worker& worker,
                                VersionWaiters::Taken& ready);
  ShardAnswer push_synchronous(const PushOrder& order, Worker& worker,
                               VersionWaiters::Taken& ready);
  std::int64_t version_seen_by(std::uint32_t worker) const;
  bool answered(const PushOrder& order, Worker& worker, ShardAnswer& result);
  void remember(const PushOrder& order, Worker& worker, const ShardAnswer& result);
  std::vector<Contributions::Complete> offer(const std::vector<ShardRange>& parts,
                                             std::vector<Contributions::Gradient> gradients,
                                             ShardAnswer& result);
  void answer(const PullOrder& order, ShardAnswer& answer);
  std::shared_ptr<MemoryBudget::Share> share_of_call(const std::vector<ShardRange>& parts,
                                                     std::size_t rows) const;
  void when_reached(std::int64_t version, std::uint64_t generation, CallerPointer caller,
                    VersionWaiters::Continue go_on);

  const MemoryBudget& budget_;
  const MemoryBudget::Share share_;
  ShardArrays arrays_;
  // Synchronous: the version rises after these updates.
  const std::size_t updates_per_step_;
  std::vector<std::unique_ptr<Worker>> workers_;
  // Pushes share the gate; a snapshot holds it exclusively. The turnstile keeps pushes from
  // starving snapshots. Lock order: gate, a worker's turn, shards ascending, mutex.
  std::mutex turnstile_;
  std::shared_mutex gate_;
  mutable std::mutex mutex_;  // guards the members below
  std::uint64_t generation_ = 0;
  bool ready_ = false, loading_ = false;
  std::optional<std::int64_t> restored_;
  std::optional<engine::Error> closed_;
  std::int64_t version_ = 0;
  std::size_t updated_ = 0;  // out of updates_per_step_
  Contributions contributions_;
  VersionWaiters waiters_;
  ShardCounts counts_;
};

}  // namespace lockstep::strategies
