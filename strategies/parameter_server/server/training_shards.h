// SPDX-License-Identifier: MIT
// The shards of one training job on one server, and all that happens to them.
//
// Asynchronous: a push is applied as it comes. Its staleness is the version when its worker's step
// begins here, less the version that the worker had pulled; all pushes of a step share it, and what
// follows of it: the scale of the rate, or that the step is dropped. The last push of a step that
// is not dropped raises the version.
//
// Synchronous: gradients wait for each other (contributions.h). They are weighted so that those of
// all workers add up to the gradient of the whole batch's mean; of k out of n the sum is taken
// times n / k. When all parts of all shards are updated the version rises, and with it the step
// that pushes must be for. A gradient that waits is not in a checkpoint: save between steps. With
// k = n the bits do not depend on who comes first.
//
// The optimizer's step of an element is the number of its updates (of a sparse shard: of its row).
//
// Until all elements have a value (assign, load) everything else is kUnavailable, and so is what
// names another generation. Refused is kInvalid, and nothing is changed. kIo: no memory; nothing is
// changed, but for a synchronous step that was complete: then the job's shards are closed.
//
// Threads: any. Pulls run beside each other and beside pushes of other shards; pushes of one worker
// one behind the other, pushes of different workers at once where they are of different shards.
// Nobody waits for more than others' arithmetic. `Answered` is called once, without a lock held, by
// the caller or by whom it waited for.
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

class TrainingShards {
 public:
  // The spec is checked, and `share` is of its memory. `ops` and `budget` outlive this. Throws
  // Error(kIo) where there is no memory.
  TrainingShards(std::string container, std::uint64_t generation, JobSpec spec,
                 const engine::Ops& ops, const MemoryBudget& budget, MemoryBudget::Share share);
  const JobSpec& spec() const { return arrays_.spec(); }
  std::uint64_t generation() const;
  std::int64_t version() const;
  bool ready() const;

  void pull(PullOrder order, CallerPointer caller, Answered done);
  void push(PushOrder order, CallerPointer caller, Answered done);
  // Values of parts, one behind the other. The version.
  std::int64_t assign(std::uint64_t generation, const std::vector<ShardRange>& parts,
                      const std::vector<rpc::Slice>& body);
  // Values from elsewhere, of a job that is not ready: `fill` is given all shards, writes weights,
  // slots and counts, and nobody else is there meanwhile. Then the job is ready, in this
  // generation. What `fill` throws is thrown, and the job is not ready. `restored`: remembered, for
  // who asks.
  struct Loaded {
    std::int64_t version = 0;
    std::vector<SequenceTable> sequences = {};  // by worker; the rest begins anew
  };
  using Fill = std::function<Loaded(std::span<const std::unique_ptr<VariableShard>>)>;
  void load(std::uint64_t generation, std::int64_t restored, const Fill& fill);
  std::optional<std::int64_t> restored() const;
  // The rows of a shard that are here.
  NamedVariables::Value read(std::size_t shard) const;
  // Calls that wait end with this error, and so does all that comes.
  void close(const engine::Error& why);
  void drop_gone();

  struct WorkerStatus {
    std::uint64_t last = 0, lost = 0;             // sequence numbers
    std::optional<engine::Clock::time_point> at;  // of its last push
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

  // Everything at one moment between pushes, on loan: it costs memory only as it changes.
  struct Snapshot {
    struct Held {
      std::vector<rpc::Slice> weights;  // ChunkedArray::kChunk elements each
      std::vector<std::vector<rpc::Slice>> slots;
      std::vector<RangeValues::Run> updates;  // of a dense shard
      std::vector<std::int32_t> row_updates;
    };
    std::int64_t version = 0;
    std::vector<Held> shards;
    std::vector<SequenceTable::Ranges> sequences;  // by worker
  };
  Snapshot snapshot(std::uint64_t generation);
  std::uint64_t checksum();  // of everything that a checkpoint keeps, and of what waits

 private:
  struct Worker {
    std::mutex turn;  // held during a push; what follows is guarded by the shards' mutex
    SequenceTable sequences;
    MemoryBudget::Share share;  // of the sequences
    bool began = false;         // a step
    std::int64_t pulled = 0, step = 0;
    std::uint64_t ended = 0;  // the number of its last push; 0: it is open
    std::uint64_t staleness = 0;
    std::optional<engine::Clock::time_point> at;
    bool goes_on(const PushOrder& order) const;
  };
  std::shared_lock<std::shared_mutex> enter();  // the gate, as pushes do
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
  const std::size_t updates_per_step_;  // synchronous: after these the version rises
  std::vector<std::unique_ptr<Worker>> workers_;
  // Pushes hold the gate together, a snapshot alone; the turnstile keeps pushes from starving it.
  // Order of locks: gate, a worker's turn, shards ascending, mutex.
  std::mutex turnstile_;
  std::shared_mutex gate_;
  mutable std::mutex mutex_;  // of what follows
  std::uint64_t generation_ = 0;
  bool ready_ = false, loading_ = false;
  std::optional<std::int64_t> restored_;
  std::optional<engine::Error> closed_;
  std::int64_t version_ = 0;
  std::size_t updated_ = 0;  // of updates_per_step_
  Contributions contributions_;
  VersionWaiters waiters_;
  ShardCounts counts_;
};

}  // namespace lockstep::strategies
