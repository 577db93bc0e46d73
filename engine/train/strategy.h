// SPDX-License-Identifier: MIT
// The port between the one training loop and the ways to train: Strategy. The engine declares it;
// strategies/ implements it. Calls that take a Replica come from the thread that runs that replica,
// inside `run`; all others from the thread that owns the strategy, outside of `run`.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/checkpoint/shard.h"
#include "engine/data/pipeline.h"
#include "engine/nn/graph.h"
#include "engine/report/timeline.h"

namespace lockstep::engine {

struct Membership {
  int rank = 0;       // of this process's first replica
  int local = 1;      // replicas of this process: ranks rank .. rank + local - 1
  int size = 1;       // of the job
  bool chief = true;  // this process holds rank 0: it writes manifests, logs and results
  int host = 0;       // of this process; rank 0's is 0; processes of a host have one clock
  std::uint64_t generation = 0;
};

// Where replicas are on a device whose memory is not the host's, layers and losses that touch their
// operands themselves (Layer::on_device) are refused, or run on the host, on copies.
enum class Fallback : std::uint8_t { kNone, kCpu };

struct OpenOptions {
  std::size_t global_batch = 1;  // examples of a step over all replicas, at most
  int accumulate = 1;            // micro-batches of a local batch
  std::uint64_t seed = 0;
  std::string run = {};   // lines that must be the same in all processes: rates, data
  std::string plan = {};  // of a checkpoint: obeyed where the membership is the same; may be empty
  // What the loop itself will take of memory: so much for each example of a replica's share, and
  // so much for each replica.
  std::size_t bytes_of_example = 0, bytes_of_replica = 0;
  Fallback fallback = Fallback::kNone;
};

// The work of a call of `run`, of which `next` assigns steps.
struct WorkSpec {
  std::uint64_t examples = 0;              // of the data set
  std::size_t global_batch = 1;            // at most OpenOptions::global_batch
  std::int64_t first_step = 0, steps = 0;  // steps [first_step, first_step + steps)
  DataPosition position = {};              // where the data stands at first_step
  bool training = true;                    // false: evaluation; nothing is updated
  std::int64_t run_steps = 0;              // of the whole run, for schedules; 0: not known
  std::uint64_t seed = 0;                  // of the run: the order of examples
};

// How far a run is: steps done, and where the data stands after them.
struct Standing {
  std::int64_t step = 0;
  DataPosition position = {};
};

// One replica's part of one step: positions in the order of `epoch`.
struct Work {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  Range local_batch = {};        // of the replica; may be empty
  std::size_t global_batch = 0;  // examples of the step over all replicas
  DataPosition after = {};       // where the data stands when this step is done
};

// The global batch of `step`, which begins at `position`; moves that behind it.
Work take_batch(const WorkSpec& work, std::int64_t step, DataPosition& position);

// One mirror on one device. Strategies derive from it what they keep with it.
struct Replica {
  Replica(int r, const GraphSpec& spec, Ops& ops, std::size_t rows, GraphOptions options = {})
      : rank(r), graph(spec, ops, rows, options) {}
  virtual ~Replica() = default;
  // What the strategy does for this replica, as spans of its own kinds; null: no more. The
  // timeline outlives the run. The replica's thread, between steps.
  virtual void record(Timeline* timeline) = 0;
  int rank;
  Graph graph;
  Context* context = nullptr;
  // The marks that the strategy's profiler is told where no profile is recorded; made when needed.
  std::optional<Timeline> ranges;
  StepState state;         // written by the loop before each step
  StepState update_state;  // its copy, taken when backward begins: the last update of step t may
};                         // still run in forward of t + 1

// What was reported for one step, over the replicas: sums, but for the times.
struct Totals {
  double loss = 0;  // sum over examples
  double correct = 0;
  double examples = 0;
  double stop = 0;  // votes to stop after this step
  double save = 0;  // votes to pause after it for a checkpoint
  // Seconds of the step before this one: what a replica waited, and in which messages of it were
  // under way. Of all replicas the least; of messages the least of those that had any.
  double waited = 0, messages = 0;
  // The same on all replicas: what losses of that step were multiplied by, 0 where they are not
  // scaled; and how many steps of the run before it changed nothing, since their gradients were not
  // finite. `synchronize`, when all is done, counts all.
  double loss_scale = 0, skipped = 0;
};

// What one replica has got from servers and given to them so far: weights and gradients, without
// the heads of messages. Rows are those of sparse parameters that travel alone.
struct Traffic {
  std::uint64_t bytes_pulled = 0, bytes_pushed = 0, rows_pulled = 0, rows_pushed = 0;
  Traffic& operator+=(const Traffic& other);
  Traffic operator-(const Traffic& before) const;
};

class Checkpoints;

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual std::string name() const = 0;  // "mirrored"
  virtual Membership membership() const = 0;

  // Plans, places, allocates, compares all processes, sets start values. Collective. May be called
  // again, after an error too: then everything starts afresh, in a new generation. Errors:
  // Error(kInvalid) where processes differ (what differs is shown), or a layer asks for what this
  // strategy cannot give; Error(kTimeout), Error(kPeerLost).
  virtual void open(const GraphSpec& graph, const UpdateRule& rule, const OpenOptions& options) = 0;
  // Runs `body`, the same in every process, outside of `run`; before `open` too. Collective. Where
  // it throws an Error in some, all throw what it threw in the first of them: nobody goes on
  // without the others, or takes one that has left for one that died. `what` stands in errors.
  virtual void run_collectively(const std::function<void()>& body, std::string_view what) = 0;
  virtual void assign(const WorkSpec& work) = 0;  // the next `run` works on this
  // Calls the function for each replica of this process at once, each on its own permanent thread;
  // returns when everything that they started is done; throws the first error.
  virtual void run(const std::function<void(Replica&)>& body) = 0;

  virtual std::optional<Work> next(Replica& replica) = 0;  // may be asked ahead of time
  // A batch lies in the graph's input, its examples are in `state`, and forward comes next. Of a
  // step once for each micro-batch, of an evaluation for each batch.
  virtual void staged(Replica&) {}
  // Part `part` of a step (a micro-batch) of a batch of so many examples, on a device whose kernels
  // are queued: `queue` queues forward, loss and backward, makes the two calls below, and in the
  // last part finishes. A strategy may have the device do again what the same part of a step
  // before has queued, instead.
  virtual void compute(Replica&, int /*part*/, std::size_t /*global_batch*/,
                       const std::function<void()>& queue) {
    queue();
  }
  // Called by Graph::forward's hook: waits until this range's weights are those of the last step.
  virtual void before_forward(Replica& replica, Range range) = 0;
  // Called by Graph::backward's hook in the last micro-batch: communication may start.
  virtual void gradient_ready(Replica& replica, Range range) = 0;
  virtual void finish(Replica& replica) = 0;  // nothing more comes from this step; does not wait
  // Once a step, of one that is finished: the last one, or, where the device's kernels are queued,
  // the one before, whose kernels are done. Does not wait for its own sums: returns those of the
  // report before, the same on all replicas that are in step (zeros at first).
  virtual Totals report(Replica& replica, std::int64_t step, const Totals& mine) = 0;
  // Waits for all updates and reports: before evaluation, a checkpoint, the end. The last report's
  // sums.
  virtual Totals synchronize(Replica& replica) = 0;
  // Makes the statistics of all replicas (Graph::statistic_values) the mean over them. Waits;
  // nothing where the model has none. Before they are read: an evaluation, a checkpoint. `what`
  // stands in errors.
  virtual void average_statistics(Replica&, std::string_view /*what*/) {}
  // Everybody's numbers, by rank, `mine.size()` each (at most kGather, the same everywhere). Waits;
  // `what` stands in the error when somebody does not come. Also a barrier.
  static constexpr std::size_t kGather = 16;
  virtual std::vector<double> gather(Replica& replica, std::span<const double> mine,
                                     std::string_view what) = 0;

  // Everybody's text, by process, on the chief; empty elsewhere. Any length: it goes in pieces.
  // Collective, outside of `run`; `what` stands in errors.
  virtual std::vector<std::string> collect(const std::string& mine, std::string_view what) = 0;

  // What a checkpoint holds. To save: the pieces of all ranks together are every array once. To
  // restore: everything that this rank must be given. Between steps, after synchronize.
  virtual std::vector<Piece> pieces_to_save(Replica& replica) = 0;
  virtual std::vector<Piece> pieces_to_restore(Replica& replica) = 0;
  // Writes and reads what these name: by default this replica's shard, and its arrays. A strategy
  // whose state lies elsewhere has it written and read there, and names no pieces. All shards, by
  // rank, on rank 0. Collective; `what` stands in errors. `fresh` arrays start at zero.
  virtual std::vector<Shard> save(Replica& replica, Checkpoints& checkpoints, std::int64_t step,
                                  std::string_view what);
  virtual void restore(Replica& replica, Checkpoints& checkpoints, std::int64_t step,
                       const std::vector<std::string>& fresh);
  // The plan of this membership, for the manifest: algorithm, bucket borders, update. JSON.
  virtual std::string plan() const = 0;

  // The choices made, a sentence each, with reasons. `algorithm` and `reason` are the parts of the
  // first of them, for machines.
  virtual std::string explain() const = 0;
  // A table for people: every variable with its shape, bytes, bucket and devices, in the order of
  // the arenas. The same text for the same model and flags.
  virtual std::string placement() const = 0;
  virtual std::string algorithm() const = 0;
  // What runs on the host though replicas are on a device: names of layers (Graph::fallbacks).
  virtual std::vector<std::string> fallbacks() const { return {}; }
  virtual std::string reason() const = 0;
  // Seconds that this replica's thread has waited for others so far.
  virtual double waited_seconds(Replica& replica) const = 0;
  // Seconds in which messages of this replica to or from other hosts were under way so far.
  virtual double messages_seconds(Replica&) const { return 0; }
  // Nothing: there are no servers. The replica's thread.
  virtual std::optional<Traffic> traffic(Replica&) const { return std::nullopt; }
  virtual void abort(const Error& error) noexcept = 0;  // wakes all waiters, everywhere, with this

  // The profiler that looks at this process and hears of the parts of its steps; null: none.
  virtual Profiler* profiler() const { return nullptr; }

  // Strategies that one process leads, the chief's: the others make the steps that they are given.
  // They keep no account of the run, save and evaluate nothing, may come late, and may be gone.
  // Here: all processes are alike.
  virtual bool follows() const { return false; }
  // Of a process that follows: waits until the leader has work for it in its present call of `fit`;
  // nothing: that call is over, or was before this process came.
  virtual std::optional<WorkSpec> assignment() { return std::nullopt; }
  // Of the leader: a call of `fit` begins, is over, ends with this error. The destructor, for a
  // program that was thrown out of it, tells the followers that it failed, and why.
  virtual void lead() {}
  virtual void released() {}
  virtual void gave_up(const Error&) {}
  // After `run`: where the run stands, where others than this process's replicas made steps too;
  // nothing: where these have left it.
  virtual std::optional<Standing> standing() const { return std::nullopt; }
};

}  // namespace lockstep::engine
