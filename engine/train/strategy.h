// SPDX-License-Identifier: MIT
// Strategy: the interface between the one training loop and the ways to train. The engine declares
// it; strategies/ implements it. Calls that take a Replica come from the thread that runs that
// replica, inside `run`; all others come from the thread that owns the strategy, outside of `run`.
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
  int rank = 0;       // this process's first replica
  int local = 1;      // this process's replicas, from `rank` on
  int size = 1;       // replicas of the job
  bool chief = true;  // holds rank 0; writes manifests, logs, results
  // The host of this process; rank 0's is 0. Processes of a host share a clock.
  int host = 0;
  std::uint64_t generation = 0;
};

// Selects what happens to layers and losses that access their operands directly (Layer::on_device)
// if a device's memory is not the host's. They are refused, or run on the host, on copies.
enum class Fallback : std::uint8_t { kNone, kCpu };

struct OpenOptions {
  std::size_t global_batch = 1;  // largest global batch
  int accumulate = 1;            // micro-batches of a local batch
  std::uint64_t seed = 0;
  std::string run = {};  // lines that all processes must share: rates, data
  // The plan of a checkpoint; may be empty. It is used if the membership is the same.
  std::string plan = {};
  // Memory that the loop itself takes per example of a replica's local batch, and per replica.
  std::size_t bytes_of_example = 0, bytes_of_replica = 0;
  Fallback fallback = Fallback::kNone;
};

// Describes the work of one call of `run`, from which `next` assigns steps.
struct WorkSpec {
  std::uint64_t examples = 0;              // size of the data set
  std::size_t global_batch = 1;            // at most OpenOptions::global_batch
  std::int64_t first_step = 0, steps = 0;  // steps [first_step, first_step + steps)
  DataPosition position = {};              // data position at first_step
  bool training = true;                    // false: evaluation, without updates
  std::int64_t run_steps = 0;              // whole run, for schedules; 0: unknown
  std::uint64_t seed = 0;                  // seed of the run: order of examples
};

// Holds the progress of a run: the steps done, and the data position after them.
struct Standing {
  std::int64_t step = 0;
  DataPosition position = {};
};

// Describes one replica's part of one step: positions in the order of `epoch`.
struct Work {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  Range local_batch = {};        // the replica's; may be empty
  std::size_t global_batch = 0;  // examples of the step over all replicas
  DataPosition after = {};       // data position after this step
};

// Returns the global batch of `step`, which begins at `position`, and advances `position` past it.
Work take_batch(const WorkSpec& work, std::int64_t step, DataPosition& position);

// Holds one mirror on one device. Strategies derive from it to add their own state.
struct Replica {
  Replica(int r, const GraphSpec& spec, Ops& ops, std::size_t rows, GraphOptions options = {})
      : rank(r), graph(spec, ops, rows, options) {}
  virtual ~Replica() = default;
  // Records the strategy's work for this replica as spans of its own kinds; null stops it. The
  // timeline outlives the run. Called on the replica's thread, between steps.
  virtual void record(Timeline* timeline) = 0;
  int rank;
  Graph graph;
  Context* context = nullptr;
  // The timeline for the strategy's profiler if no profile is recorded; created on demand.
  std::optional<Timeline> ranges;
  StepState state;  // written by the loop before each step
  // The last update of step t may still run during forward of step t + 1.
  StepState update_state;  // copy for updates, taken when backward begins
};

// Holds the reports of one step, combined over the replicas: sums, except for the times.
struct Totals {
  double loss = 0;  // sum over examples
  double correct = 0;
  double examples = 0;
  double stop = 0;  // votes to stop after this step
  double save = 0;  // votes to pause after it for a checkpoint
  // Seconds of the previous step that a replica waited, and that its messages were under way.
  // Minimum over all replicas; for `messages`, over those that had any.
  double waited = 0, messages = 0;
  // The loss scale of that step (0: losses are not scaled), and the number of steps skipped before
  // it in the run because their gradients were not finite. Both are the same on all replicas. After
  // `synchronize`, `skipped` counts all steps.
  double loss_scale = 0, skipped = 0;
};

// Counts what one replica has exchanged with servers so far: weights and gradients, without message
// headers. Rows are those of sparse parameters that are sent individually.
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

  // Plans, places and allocates the model, compares all processes, and sets initial values.
  // Collective. It may be called again, also after an error: everything then starts over in a new
  // generation. Throws Error(kInvalid) if processes differ (the message shows the difference) or a
  // layer needs something that this strategy does not support; Error(kTimeout), Error(kPeerLost).
  virtual void open(const GraphSpec& graph, const UpdateRule& rule, const OpenOptions& options) = 0;
  // Runs `body` in every process, outside of `run`; also valid before `open`. Collective. If it
  // throws an Error in some processes, all processes throw that of the first of them. No process
  // then continues alone, or mistakes a process that left for one that died. `what` names the call
  // in errors.
  virtual void run_collectively(const std::function<void()>& body, std::string_view what) = 0;
  virtual void assign(const WorkSpec& work) = 0;  // the next `run` works on this
  // Calls the function for each replica of this process in parallel, each on its own permanent
  // thread. Returns when everything that they started is done; throws the first error.
  virtual void run(const std::function<void(Replica&)>& body) = 0;

  virtual std::optional<Work> next(Replica& replica) = 0;  // may be called ahead of time
  // Follows the staging of a batch: it lies in the graph's input, its examples in `state`, and
  // forward comes next. Called once per micro-batch of a step, or once per batch of an evaluation.
  virtual void staged(Replica&) {}
  // Computes micro-batch `part` of a step of `global_batch` examples, on a device that queues
  // kernels. `queue` queues forward, loss and backward, makes the two calls below, and calls
  // `finish` in the last micro-batch. A strategy may instead let the device repeat what the same
  // micro-batch of an earlier step queued.
  virtual void compute(Replica&, int /*part*/, std::size_t /*global_batch*/,
                       const std::function<void()>& queue) {
    queue();
  }
  // Waits until this range has the weights of the last step. Called by Graph::forward's hook.
  virtual void before_forward(Replica& replica, Range range) = 0;
  // Allows communication of this range to start. Called by Graph::backward's hook in the last
  // micro-batch.
  virtual void gradient_ready(Replica& replica, Range range) = 0;
  // Marks the end of a step's gradients; does not wait.
  virtual void finish(Replica& replica) = 0;
  // Reports a finished step, once per step: the last one, or on a device that queues kernels the
  // one before it. Does not wait for this report's sums. Returns those of the previous report
  // (zeros at first), which are the same on all replicas at the same step.
  virtual Totals report(Replica& replica, std::int64_t step, const Totals& mine) = 0;
  // Waits for all updates and reports, and returns the sums of the last report. Called before an
  // evaluation, before a checkpoint and at the end.
  virtual Totals synchronize(Replica& replica) = 0;
  // Replaces the statistics of all replicas (Graph::statistic_values) by their mean. Waits; does
  // nothing if the model has none. Replicas without examples since the last call do not count.
  // Called before an evaluation or a checkpoint reads them: a step at which only one of two runs
  // does so may change the last bits of later averages, but not of weights. `what` names the call
  // in errors.
  virtual void average_statistics(Replica&, std::string_view /*what*/) {}
  // Returns all replicas' numbers by rank, `mine.size()` each (at most kGather, the same
  // everywhere). Waits, so it is also a barrier. `what` names the call in the error if a rank is
  // missing.
  static constexpr std::size_t kGather = 16;
  virtual std::vector<double> gather(Replica& replica, std::span<const double> mine,
                                     std::string_view what) = 0;

  // Returns all processes' texts, by process, on the chief; empty elsewhere. Texts of any length
  // are sent in chunks. Collective, outside of `run`. `what` names the call in errors.
  virtual std::vector<std::string> collect(const std::string& mine, std::string_view what) = 0;

  // Returns the contents of a checkpoint. To save: the pieces of all ranks together cover every
  // array once. To restore: everything that this rank needs. Called between steps, after
  // synchronize.
  virtual std::vector<Piece> pieces_to_save(Replica& replica) = 0;
  virtual std::vector<Piece> pieces_to_restore(Replica& replica) = 0;
  // Writes and reads these pieces: by default this replica's shard and its arrays. A strategy whose
  // state is elsewhere has it written and read there, and returns no pieces. `save` returns all
  // shards, by rank, on rank 0. Collective. `what` names the call in errors. `fresh` arrays start
  // at zero.
  virtual std::vector<Shard> save(Replica& replica, Checkpoints& checkpoints, std::int64_t step,
                                  std::string_view what);
  virtual void restore(Replica& replica, Checkpoints& checkpoints, std::int64_t step,
                       const std::vector<std::string>& fresh);
  // Returns this membership's plan for the manifest as JSON: algorithm, bucket boundaries, update.
  virtual std::string plan() const = 0;

  // Returns the choices made, one sentence each, with reasons. `algorithm` and `reason` return the
  // parts of the first sentence, for programs.
  virtual std::string explain() const = 0;
  // Returns a readable table of every variable with its shape, bytes, bucket and devices, in the
  // order of the arenas. The text is the same for the same model and flags.
  virtual std::string placement() const = 0;
  // Returns e.g. "pid 4711 on host node1"; empty if the job has one process, or if it is unknown.
  virtual std::string place_of(int /*rank*/) const { return {}; }
  virtual std::string algorithm() const = 0;
  // Returns the names of layers that run on the host although replicas use a device
  // (Graph::fallbacks).
  virtual std::vector<std::string> fallbacks() const { return {}; }
  virtual std::string reason() const = 0;
  // Returns the seconds that this replica's thread has waited for others so far.
  virtual double waited_seconds(Replica& replica) const = 0;
  // Returns the seconds so far in which messages between this replica and other hosts were under
  // way.
  virtual double messages_seconds(Replica&) const { return 0; }
  // Returns the traffic so far; empty if there are no servers. Called on the replica's thread.
  virtual std::optional<Traffic> traffic(Replica&) const { return std::nullopt; }
  // Wakes all waiters in all processes with this error.
  virtual void abort(const Error& error) noexcept = 0;

  // Returns the profiler that observes this process and receives the parts of its steps; may be
  // null.
  virtual Profiler* profiler() const { return nullptr; }

  // Returns whether this process follows the chief. Followers only run the steps that they are
  // assigned. They do not track the run, save or evaluate, may join late, and may leave. By default
  // all processes are alike.
  virtual bool follows() const { return false; }
  // Waits, in a follower, until the leader has work for it in its present call of `fit`. Empty if
  // that call is over, or ended before this process joined.
  virtual std::optional<WorkSpec> assignment() { return std::nullopt; }
  // Tells, in the leader, that a call of `fit` begins, is over, or ends with this error. If an
  // exception unwinds the program, the strategy's destructor tells the followers that it failed,
  // and why.
  virtual void lead() {}
  virtual void released() {}
  virtual void gave_up(const Error&) {}
  // Returns the run's position after `run` if replicas of other processes made steps too. Empty if
  // it is where this process's replicas left it.
  virtual std::optional<Standing> standing() const { return std::nullopt; }

  // Returns the trainer for which the strategy was opened last, whose weights it holds. Null
  // before, and while it is opened. Trainers notice by it that another one took their place.
  const void* holder() const { return holder_; }
  void set_holder(const void* holder) { holder_ = holder; }

 private:
  const void* holder_ = nullptr;
};

}  // namespace lockstep::engine
