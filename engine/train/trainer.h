// SPDX-License-Identifier: MIT
// The training loop. It knows only the interface (Strategy), so the same loop trains under every
// strategy. It restores what its checkpoint folder holds, trains, evaluates, saves, and reports.
//
//   Trainer trainer(strategy, models::mnist_cnn(), optim::sgd({.rate = 0.05}));
//   trainer.fit(*digits.train, {.epochs = 6, .global_batch = 64, .checkpoints = "runs/digits"});
//
// One thread owns a trainer; all processes of a strategy make the same calls. A strategy holds the
// weights of one trainer: the one that called `fit` or `restore` last, or evaluated first. If one
// process leads, `fit` of the others runs the steps that they are assigned and returns their
// history; `evaluate` and `predict` return NaN there. The strategy outlives the trainer, and a data
// set the call that uses it. Throws Error(kInvalid) for incompatible arguments, Error(kIo) if
// another run holds the checkpoint folder, and the strategy's errors. After such an error `fit` may
// be called again.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/log.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/folder_claim.h"
#include "engine/data/dataset.h"
#include "engine/nn/graph_spec.h"
#include "engine/optim/optimizer.h"
#include "engine/report/profile.h"
#include "engine/report/step_times.h"
#include "engine/train/strategy.h"

namespace lockstep::engine {

// Reports a step, or the steps of an execution (FitOptions::steps_per_execution), summed over all
// replicas. Reports are one late, so that nothing waits for them; the last one of an epoch comes
// with its end.
struct StepReport {
  std::int64_t step = 0, steps = 0;  // last step's number, from 0; of the run
  std::int64_t epoch = 0;
  double rate = 0;
  double loss = 0;      // mean over the examples of these steps
  double accuracy = 0;  // fraction of these examples; NaN if not counted
  std::size_t examples = 0;
  double examples_per_second = 0;  // of all replicas since the report before
  // Seconds per step that rank 0's thread waited: communication that is not hidden, and other
  // waits.
  double waited = 0;
  std::optional<Traffic> traffic = {};  // rank 0, these steps; with servers
  double loss_scale = 0;                // last step's; 0: not scaled
  // Steps of the whole run that were skipped because their gradients were not finite. The last step
  // is included only if an epoch or the run ends with it.
  std::int64_t skipped_steps = 0;
};

// Reports the steps of an epoch in this run; with servers, those that rank 0 trained.
struct EpochReport {
  std::int64_t number = 0;  // from 1, counting those before a restart
  bool resumed = false;     // an earlier run trained its first steps
  double loss = 0;          // mean over the examples of these steps
  double accuracy = 0;      // fraction of these examples; NaN if not counted
  std::size_t examples = 0;
  double examples_per_second = 0;  // 0: unknown
};

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Evaluation {
  double loss = 0;      // mean over all examples, exact over replicas
  double accuracy = 0;  // fraction of all examples; NaN if not counted
  std::uint64_t examples = 0;
  // The fraction whose class is among the five largest outputs (ties: the first). NaN if the loss
  // does not count correct answers, if a target is not one class, or if there are at most five
  // classes.
  double top5 = kNaN;
  // The area under the ROC curve of the logits for data of two classes, exact over replicas. It is
  // NaN for other data, or if all examples are of one class.
  double auc = kNaN;
};

struct FitOptions {
  // Total epochs, including those before a restart, whatever batch they had.
  std::int64_t epochs = 1;
  std::int64_t steps = 0;         // instead of epochs if > 0
  std::size_t global_batch = 32;  // examples of a step over all replicas
  int accumulate = 1;             // micro-batches per local batch; same result, less memory
  bool shuffle = true;

  std::string checkpoints = {};  // folder, exclusive to this run; empty: none
  // The interval between checkpoints in steps, and in seconds; 0: unused. If both are 0, a
  // checkpoint is saved at the end of each epoch. After `every_seconds` rank 0 votes with the sums
  // of a step, so all ranks save the same step, one or two later. The bits of the run stay the
  // same.
  std::int64_t every = 0;
  double every_seconds = 0;
  int keep = 3;                                   // number of checkpoints kept
  Profile* profile = nullptr;                     // records a few steps; outlives the call
  int retries = 0;                                // most restores after Error(kUnavailable)
  std::map<std::string, std::string> notes = {};  // the program's own, for the manifest

  const Dataset* test = nullptr;    // evaluated periodically and at the end
  std::int64_t evaluate_every = 1;  // in epochs; 0: only at the end
  int prefetch_threads = 1;         // per replica; 0: the replica reads itself
  // Steps that the host queues on a device before it reads the numbers of one. With 1 the device
  // always has work; with 0 a loss that is not finite is traced to a layer. The bits are the same.
  // No effect if kernels run on the host.
  int steps_ahead = 1;
  // Steps that are reported together, as one sum, so that replicas need not synchronize for each
  // step's loss. An interrupt takes effect at their end. The end of an epoch and a checkpoint end
  // them too.
  std::int64_t steps_per_execution = 1;

  // Runs on the chief when all memory is allocated, before the first step: `done` of `steps` steps
  // are done.
  std::function<void(std::int64_t done, std::int64_t steps)> on_open = {};
  // A value other than 0 makes `fit` finish the step, or leave the evaluation between two batches,
  // then save and return.
  const std::atomic<int>* interrupt = nullptr;
  // Run on the chief, in order: on_step on the thread of rank 0, the others on the thread that
  // called `fit`. They may not call the trainer, but in one process on_epoch, on_evaluation and
  // on_checkpoint may evaluate and predict. `fit` throws the exception of a callback on the chief,
  // and Error(kAborted) with its text in other processes.
  std::function<void(const StepReport&)> on_step = {};
  std::function<void(const EpochReport&)> on_epoch = {};
  // Steps and epochs are those of the whole run, including those before a restart.
  std::function<void(const Evaluation&, std::int64_t steps, std::int64_t epochs)> on_evaluation =
      {};
  std::function<void(std::int64_t step)> on_checkpoint = {};
};

struct History {
  std::int64_t first_step = 0;     // 0, or the checkpoint's step
  std::int64_t steps = 0;          // total, including earlier runs
  double seconds = 0;              // training only, without evaluation and checkpoints
  double examples_per_second = 0;  // median, without this run's first ten steps
  double loss = kNaN;              // last step's, on the chief; NaN without steps
  double loss_scale = 0;           // last step's; 0: not scaled
  std::int64_t skipped_steps = 0;  // total of steps that changed nothing
  std::optional<Evaluation> test = {};
  std::int64_t test_step = 0;           // steps before `test`
  std::optional<StepTimes> times = {};  // this run's, by rank; empty without steps
  // The total traffic of the steps that this process's replicas made, if there are servers.
  std::optional<Traffic> traffic = {};
  std::int64_t traffic_steps = 0;  // each replica's part of a step counts
  // The *interrupt that ended the run, of the first process that had one; 0: none did.
  int interrupted = 0;
  int interrupted_rank = 0;  // the first rank of that process
  int restores = 0;          // restores after errors
  int fallbacks = 0;         // layers and losses run on the host
};

struct TrainerOptions {
  // With kCpu the log names the layers that run on the host, once, and the history counts them.
  Fallback fallback = Fallback::kNone;
  std::uint64_t seed = 1;
  std::string model = {};  // name in a registry, for the manifest
  Log log = Log();
  Storage* storage = nullptr;  // null: the file system; outlives the trainer
};

// Counts the memory that the loop takes besides the strategy, for batches and the order of the
// examples.
struct LoopBytes {
  std::size_t of_example = 0;  // per example of a local batch
  std::size_t of_replica = 0;
};

class Trainer {
 public:
  Trainer(Strategy& strategy, GraphSpec graph, optim::Optimizer optimizer,
          TrainerOptions options = {});
  ~Trainer();
  // If the folder has a checkpoint, training continues from it. Otherwise it continues from the
  // weights of an earlier `fit` or `restore`, if there was one, and epochs and steps count anew. It
  // then throws Error(kInvalid) if batch or `accumulate` are not those of the earlier `fit`. After
  // an error it starts from new weights, or from those of the last `restore`.
  History fit(const Dataset& data, const FitOptions& options);
  // `global_batch`: 0 means that of the last `fit`, or 100 before the first.
  Evaluation evaluate(const Dataset& data, std::size_t global_batch = 0);
  // Receives the outputs of this process's examples, in any order, one call at a time: the example
  // and the graph's output as float64.
  using Outputs = std::function<void(std::int64_t example, std::span<const double> output)>;
  Evaluation predict(const Dataset& data, std::size_t global_batch, const Outputs& outputs);
  // Loads the weights of a folder's newest valid checkpoint, whatever loss they were trained with.
  // Throws Error(kInvalid) if there is none. `step`: loads those of this step; throws
  // Error(kCorrupt) if its checkpoint is not whole.
  RunState restore(const std::string& checkpoints, std::optional<std::int64_t> step = {});
  // Returns the values of a parameter, such as "conv1.weight", in the order of its elements. Needs
  // a `fit` or `restore` before. Throws Error(kInvalid) for an unknown name, and if servers keep
  // the weights: their checkpoints (safetensors) hold them. Collective.
  std::vector<double> weights(std::string_view parameter);
  const GraphSpec& graph() const { return graph_; }

 private:
  struct Fit;
  static constexpr std::size_t kEvaluationBatch = 100;
  void open(std::size_t batch, int accumulate, const std::string& plan);
  void open_without_checkpoints(std::size_t batch, int accumulate, bool reopen);
  void require_same_step(std::int64_t step);
  RunState open_restored(const std::string& folder, std::optional<std::int64_t> step,
                         std::size_t batch, int accumulate);
  // Throws Error(kInvalid) if another trainer has opened the strategy since this one did.
  void require_weights() const;
  // Throws Error(kInvalid) if a callback of `fit` makes the call and may not.
  void require_possible_now(std::string_view call) const;
  void tell_fallbacks();
  RunState find(Checkpoints& checkpoints, std::int64_t step, const Dataset* data);
  std::vector<std::string> fresh_slots(Checkpoints& checkpoints, const RunState& state);
  void open_with(Checkpoints& checkpoints, const std::optional<RunState>& state, std::size_t batch,
                 int accumulate, const std::vector<std::string>& fresh);
  void check(const Dataset& data) const;
  template <class Callback, class... Arguments>
  void on_chief(const Callback& callback, const Arguments&... arguments);
  void begin(Fit& fit, bool reopen);
  void tell(const Fit& fit, const RunState& state) const;
  void prepare(Fit& fit, const std::optional<FolderClaim>& claim);
  History run(Fit& fit);
  History follow(const Dataset& data, const FitOptions& options);
  void train(Fit& fit, std::int64_t until);
  void measure(Fit& fit);
  void save(Fit& fit);
  void test(Fit& fit);
  std::optional<Evaluation> forward_all(const Dataset& data, std::size_t batch,
                                        const Outputs* outputs, const FitOptions* fit);

  Strategy& strategy_;
  GraphSpec graph_;
  optim::Optimizer optimizer_;
  TrainerOptions options_;
  std::unique_ptr<Storage> own_storage_;
  Storage* storage_;
  std::uint64_t seed_;
  std::string run_ = {};  // what all processes of a fit must share
  LoopBytes loop_bytes_;
  std::size_t batch_ = 0;  // planned batch; 0: not open
  std::atomic<bool> fitting_ = false, stepping_ = false;
  bool told_fallbacks_ = false;
  bool broken_ = false;        // incomplete weights, or after an error
  bool trained_ = false;       // the weights are neither new nor restored_'s
  std::string restored_ = {};  // the folder of the last `restore`
  std::optional<std::int64_t> restored_step_ = {};
  int accumulate_ = 1;
};

}  // namespace lockstep::engine
