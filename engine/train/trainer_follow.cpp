// SPDX-License-Identifier: MIT
// Fitting in a process that follows the chief of its strategy: runs steps while work is assigned.
#include "engine/train/trainer.h"
#include "engine/train/training_loop.h"

namespace lockstep::engine {

History Trainer::follow(const Dataset& data, const FitOptions& options) {
  open(options.global_batch, options.accumulate, "");
  Progress progress;
  progress.clocks.resize(std::size_t(strategy_.membership().local));
  History history;
  bool began = false;
  while (const std::optional<WorkSpec> work = strategy_.assignment()) {
    require(work->seed == seed_, Option::kSeed,
            "the chief trains with seed {}, which its checkpoint has, and this process with {}: "
            "start all processes with seed {}",
            work->seed, seed_, work->seed);
    require(work->examples == data.size() && work->global_batch <= batch_,
            "the chief has {} examples in batches of {}, and this process {} examples in batches "
            "of up to {}: start all processes with the same data and flags",
            work->examples, work->global_batch, data.size(), batch_);
    if (!began) history.first_step = work->first_step;
    began = true;
    strategy_.assign(*work);
    const auto begin = Clock::now();
    TrainingLoop loop(strategy_, data, optimizer_, options, work->run_steps, accumulate_, seed_,
                      progress);
    strategy_.run([&](Replica& replica) { loop.run(replica); });
    history.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    history.steps = progress.step;
    if (progress.stopped != 0) history.interrupted = progress.stopped;
  }
  if (options.interrupt != nullptr && options.interrupt->load() != 0)
    history.interrupted = options.interrupt->load();
  broken_ = false;
  return history;
}

}  // namespace lockstep::engine
