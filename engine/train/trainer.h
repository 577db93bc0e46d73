// SPDX-License-Identifier: MIT
// The one training loop. It knows the port (Strategy) and nothing behind it, so the same loop
// trains under every strategy. Restores what its checkpoint folder holds, trains, evaluates, saves,
// and tells what it does.
//
//   Trainer trainer(strategy, models::mnist_cnn(), optim::sgd({.rate = 0.05}));
//   trainer.fit(*digits.train, {.epochs = 6, .global_batch = 64, .checkpoints = "runs/digits"});
//
// One thread owns a trainer; under a strategy of several processes all of them make the same calls.
// Where one of them leads, `fit` of the others makes the steps that it is given, and what it
// returns tells of these; `evaluate` and `predict` are the leader's, and give nothing elsewhere.
// The strategy, and the data sets of a call, outlive it. Errors: Error(kInvalid) for what cannot
// fit together, Error(kIo) where another run has the folder of checkpoints, and what the strategy
// throws; after such an error `fit` may be called again.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
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

// What is known after a step, or after those of an execution (FitOptions::steps_per_execution),
// summed over all replicas. Reports come one late, so that nobody waits for them; the last one of
// an epoch comes with its end.
struct StepReport {
  std::int64_t step = 0, steps = 0;  // the last one's number, from 0; of the whole run
  std::int64_t epoch = 0;
  double rate = 0;
  double loss = 0;      // mean over the examples of these steps
  double accuracy = 0;  // part of them; NaN where the loss counts none
  std::size_t examples = 0;
  double seconds = 0;            // since `fit` began
  double images_per_second = 0;  // of these steps
  // Of a step's time, what rank 0's thread waited: communication that is not hidden, and others.
  double waited = 0;
  std::optional<Traffic> traffic = {};  // of rank 0 in these steps, where there are servers
  double loss_scale = 0;                // of the last one; 0: losses are not scaled
  // Of the whole run, that changed nothing, since their gradients were not finite: those before the
  // last one, and it, too, where an epoch or the run ends with it.
  std::int64_t skipped_steps = 0;
};

struct Evaluation {
  double loss = 0;      // mean over all examples, exact over replicas
  double accuracy = 0;  // part of them; NaN where the loss counts none
  std::uint64_t examples = 0;
  // The part whose class is among the five largest outputs, the first of equals before the others;
  // NaN where the loss counts none, or where there are no more classes than five.
  double top5 = std::numeric_limits<double>::quiet_NaN();
  // Of data of two classes: the area under the ROC curve of the logits, exact over replicas; NaN of
  // other data, and where all examples are of one class.
  double auc = std::numeric_limits<double>::quiet_NaN();
};

struct FitOptions {
  // In all, those before a restart included, whatever batch they had.
  std::int64_t epochs = 1;
  std::int64_t steps = 0;         // instead of epochs, where > 0
  std::size_t global_batch = 32;  // examples of a step over all replicas
  int accumulate = 1;             // micro-batches of each replica's share; same result, less memory
  bool shuffle = true;

  std::string checkpoints = {};  // folder, of this run alone while it lasts; empty: none
  std::int64_t every = 0;        // steps between checkpoints; 0: at the end of each epoch ...
  double every_seconds = 0;      // ... or, where above 0, by time: at the first step after so long
  int keep = 3;                  // checkpoints that stay
  Profile* profile = nullptr;    // records a few steps; outlives the call
  int retries = 0;               // after Error(kUnavailable): restore and go on, so many times
  std::map<std::string, std::string> notes = {};  // the program's own, for the manifest

  const Dataset* test = nullptr;    // evaluated after so many epochs, and at the end ...
  std::int64_t evaluate_every = 1;  // ... 0: only at the end
  int prefetch_threads = 1;         // of a replica; 0: the replica reads for itself
  // Steps that the host queues on a device before it reads the numbers of one: 1, so that the
  // device is never out of work, or 0, so that a loss that is not finite is traced to a layer. The
  // same bits. Nothing where kernels are the host's.
  int steps_ahead = 1;
  // Steps that are reported together: sums over them, once, so that replicas need not meet for each
  // step's loss. An interrupt is heard at their ends. The end of an epoch, and a checkpoint, end
  // them too.
  std::int64_t steps_per_execution = 1;

  // On the chief, when all memory is taken, before the first step.
  std::function<void()> on_open = {};
  // Not 0: finish the step, or leave the evaluation between two batches; save, return.
  const std::atomic<int>* interrupt = nullptr;
  // On the chief, in order; on_step from the thread of rank 0. What they throw ends the training.
  std::function<void(const StepReport&)> on_step = {};
  std::function<void(std::int64_t epoch, const StepReport& last)> on_epoch = {};
  // After so many steps and epochs of the whole run, those before a restart included.
  std::function<void(const Evaluation&, std::int64_t steps, std::int64_t epochs)> on_evaluation =
      {};
  std::function<void(std::int64_t step)> on_checkpoint = {};
};

struct History {
  std::int64_t first_step = 0;     // 0, or what a checkpoint held
  std::int64_t steps = 0;          // done in all
  double seconds = 0;              // of training steps, without evaluation and checkpoints
  double images_per_second = 0;    // median over this run's steps without its first ten
  double loss = 0;                 // of the last step
  double loss_scale = 0;           // likewise; 0: losses are not scaled
  std::int64_t skipped_steps = 0;  // in all: they changed nothing
  std::optional<Evaluation> test = {};
  std::optional<StepTimes> times = {};  // of this run's steps, by rank; none: there were no steps
  // Of the steps that this process's replicas made, where there are servers: all together.
  std::optional<Traffic> traffic = {};
  std::int64_t traffic_steps = 0;  // a replica's part of a step counts as one
  int interrupted = 0;             // the value of *interrupt
  int restores = 0;                // after errors
  int fallbacks = 0;               // layers and losses that ran on the host (TrainerOptions)
};

struct TrainerOptions {
  // With kCpu the log names what runs on the host, once, and a history counts it.
  Fallback fallback = Fallback::kNone;
  std::uint64_t seed = 1;
  std::string model = {};  // name in a registry, for the manifest
  Log log = Log();
  Storage* storage = nullptr;  // else the file system; outlives the trainer
};

// Memory that the loop takes besides the strategy, for its batches and the order of the examples.
struct LoopBytes {
  std::size_t of_example = 0;  // of a replica's share
  std::size_t of_replica = 0;
};

class Trainer {
 public:
  Trainer(Strategy& strategy, GraphSpec graph, optim::Optimizer optimizer,
          TrainerOptions options = {});
  ~Trainer();
  History fit(const Dataset& data, const FitOptions& options);
  Evaluation evaluate(const Dataset& data, std::size_t global_batch = 0);  // 0: fit's, or 100
  // Outputs of this process's share of the examples, in any order, one call at a time: example and
  // the graph's output as float64.
  using Outputs = std::function<void(std::int64_t example, std::span<const double> output)>;
  Evaluation predict(const Dataset& data, std::size_t global_batch, const Outputs& outputs);
  // Weights of the newest whole checkpoint of a folder, whatever loss they were trained with.
  // Error(kInvalid) where there is none.
  RunState restore(const std::string& checkpoints);
  const GraphSpec& graph() const { return graph_; }

 private:
  struct Fit;
  static constexpr std::size_t kEvaluationBatch = 100;
  void open(std::size_t batch, int accumulate, const std::string& plan);
  void tell_fallbacks();
  RunState find(Checkpoints& checkpoints, std::int64_t step, const Dataset* data);
  std::vector<std::string> fresh_slots(Checkpoints& checkpoints, const RunState& state);
  void open_with(Checkpoints& checkpoints, const std::optional<RunState>& state, std::size_t batch,
                 int accumulate, const std::vector<std::string>& fresh);
  void check(const Dataset& data) const;
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
  std::string run_ = {};  // what the processes of a fit must have in common
  LoopBytes loop_bytes_;
  std::size_t batch_ = 0;  // planned for; 0: not open
  bool told_fallbacks_ = false;
  int accumulate_ = 1;
};

}  // namespace lockstep::engine
