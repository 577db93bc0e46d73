// SPDX-License-Identifier: MIT
#include "tools/evaluator.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "engine/base/brief.h"
#include "engine/base/plain_file.h"
#include "engine/base/quantity.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/optim/optimizer.h"
#include "engine/report/event_log.h"
#include "engine/train/trainer.h"
#include "strategies/parameter_server/cluster/tf_config.h"
#include "strategies/session/factories.h"
#include "strategies/synchronous/plan_record.h"
#include "tools/data_choice.h"
#include "tools/exit_codes.h"
#include "tools/progress.h"
#include "tools/records.h"
#include "tools/signals.h"
#include "tools/standard_streams.h"
#include "tools/strategy_choice.h"

namespace lockstep::tools {
namespace {

using engine::Code;
using engine::Error;

constexpr std::chrono::milliseconds kPollInterval{500};    // between two looks into the folder
constexpr std::chrono::hours kMostWait{24};                // for a checkpoint
constexpr std::size_t kMostRecord = std::size_t(1) << 28;  // bytes of evaluations.jsonl

// Returns the steps that a file of evaluations has. A last line that was cut off has none.
std::set<std::int64_t> steps_of(const std::string& file) {
  std::set<std::int64_t> steps;
  std::istringstream lines(engine::read_text(file, file, kMostRecord));
  for (std::string line; std::getline(lines, line);) {
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (object.is_object() && object.contains("step") && object["step"].is_number_integer())
      steps.insert(object["step"].get<std::int64_t>());
  }
  return steps;
}

class Evaluator {
 public:
  Evaluator(const TrainFlags& f, const Program& program)
      : f_(f),
        log_("evaluator", f.verbosity.level()),
        session_(program.argc, program.argv, {.launched = false, .log = log_}),
        storage_(engine::posix_storage()),
        checkpoints_(*storage_, f.files.checkpoints, 1, log_) {
    storage_->make_folder(f.files.checkpoints);
    std::string holder;
    lock_ = storage_->lock(f.files.checkpoints + "/evaluator.lock", "an evaluator", holder);
    if (!lock_)
      engine::fail(Code::kIo, "another evaluator watches {}; end it first",
                   engine::brief(f.files.checkpoints));
    const std::string file = f.files.checkpoints + "/evaluations.jsonl";
    if (storage_->exists(file)) done_ = steps_of(file);
    if (!done_.empty())
      log_.info("{} were evaluated before, as {} says",
                engine::count_text(done_.size(), "checkpoint"), engine::brief(file));
    evaluations_.emplace(file, log_);
    TrainFlags records = f;
    records.files.profile.clear();  // of the run that trains
    records_.emplace(records, true, log_);
  }

  int run(const std::atomic<int>& interrupt) {
    auto last_news = engine::Clock::now();
    bool announced = false;
    while (!ended()) {
      const std::size_t before = done_.size();
      const std::vector<std::int64_t> steps = checkpoints_.steps();
      for (const std::int64_t step : steps) {
        if (interrupt != 0) return exit_code_of_signal(interrupt);
        if (!done_.contains(step)) evaluate(step);
      }
      if (done_.size() > before) {
        last_news = engine::Clock::now();
        continue;  // others may have come
      }
      if (interrupt != 0) return exit_code_of_signal(interrupt);
      if (engine::Clock::now() - last_news > kMostWait)
        engine::fail(Code::kIo, "no checkpoint came into {} for {} hours",
                     engine::brief(f_.files.checkpoints), kMostWait.count());
      if (!std::exchange(announced, true) && !f_.verbosity.quiet)
        log_.info("waiting for checkpoints in {}", engine::brief(f_.files.checkpoints));
      std::this_thread::sleep_for(kPollInterval);
    }
    return kDone;
  }

 private:
  // Returns whether the newest checkpoint is the last of its run, and done.
  bool ended() {
    const std::vector<std::int64_t> steps = checkpoints_.steps();
    if (steps.empty() || !done_.contains(steps.back())) return false;
    try {
      if (!last_ || last_->step != steps.back()) last_ = checkpoints_.read_state(steps.back());
    } catch (const Error& error) {
      if (error.code() != Code::kCorrupt) throw;
      return false;  // damaged, or removed by a run that continues
    }
    return last_->step >= last_->steps;
  }

  bool is_there(std::int64_t step) {
    const std::vector<std::int64_t> steps = checkpoints_.steps();
    return std::ranges::find(steps, step) != steps.end();
  }

  // Returns whether `read` could read the checkpoint of a step; else the step is done without an
  // evaluation.
  template <class Read>
  bool is_read(std::int64_t step, Read read) {
    try {
      read();
      return true;
    } catch (const Error& error) {
      const bool removed = !is_there(step);
      if (!removed && error.code() != Code::kCorrupt) throw;
      skip(step, removed ? "the run removed it before it was evaluated; --keep lets it keep more"
                         : error.what());
      return false;
    }
  }

  void evaluate(std::int64_t step) {
    engine::RunState state;
    if (!is_read(step, [&] { state = checkpoints_.read_state(step); })) return;
    open(state);
    if (!is_read(step, [&] { trainer_->restore(f_.files.checkpoints, step); })) return;
    const engine::Evaluation test = trainer_->evaluate(*sets_.test, f_.data.global_batch);
    records_->evaluation(test, step, state.position.epoch);
    evaluations_->write("evaluation", {{"step", step},
                                       {"epoch", std::int64_t(state.position.epoch)},
                                       {"loss", test.loss},
                                       {"accuracy", test.accuracy},
                                       {"top5", test.top5},
                                       {"auc", test.auc}});
    finish(step);
    if (f_.json) {
      print(nlohmann::json{{"step", step},
                           {"loss", test.loss},
                           {"accuracy", test.accuracy},
                           {"top5", test.top5},
                           {"auc", test.auc}}
                .dump() +
            "\n");
    } else {
      print(Progress::evaluation_text(test, engine::count_text(std::uint64_t(step), "step")) +
            "\n");
    }
  }

  void skip(std::int64_t step, const std::string& reason) {
    log_.warning("the checkpoint of step {} is not evaluated: {}", step, reason);
    evaluations_->write("skipped", {{"step", step}, {"reason", reason}});
    finish(step);
  }

  // Without its line a checkpoint would be evaluated again by the next evaluator.
  void finish(std::int64_t step) {
    if (!evaluations_->whole())
      engine::fail(Code::kIo, "{}/evaluations.jsonl cannot be written",
                   engine::brief(f_.files.checkpoints));
    done_.insert(step);
  }

  // Creates data, strategy and trainer by the state of the first checkpoint.
  void open(const engine::RunState& state) {
    if (trainer_) return;
    engine::GraphSpec graph = recorded_graph(state);
    DataChoice choice = recorded_choice(state);
    if (!f_.data.data.empty()) choice.data = f_.data.data, choice.test = f_.data.test;
    if (!f_.data.test.empty()) choice.test = f_.data.test;
    if (f_.data.examples) choice.examples = f_.data.examples;
    sets_ = choose_data(choice, graph);
    for (const std::string& warning : sets_.warnings) log_.warning("{}", warning);
    engine::require(sets_.test != nullptr,
                    "the data has no test part, so there is nothing to evaluate: name a file of it "
                    "with --test");
    strategies::StrategyOptions options = strategy_options(f_);
    if (strategies::recorded_dtype(state.plan) == engine::DType::kBFloat16)
      options.step.dtype = engine::DType::kBFloat16;  // the dtype of training
    strategy_ = strategies::make_strategy("mirrored", session_, options);
    engine::TrainerOptions trainer_options;
    trainer_options.log = log_;
    trainer_ = std::make_unique<engine::Trainer>(*strategy_, std::move(graph), engine::optim::sgd(),
                                                 trainer_options);
  }

  const TrainFlags& f_;
  engine::Log log_;
  strategies::Session session_;
  std::unique_ptr<engine::Storage> storage_;
  engine::Checkpoints checkpoints_;
  std::unique_ptr<engine::StorageLock> lock_;
  std::optional<engine::EventLog> evaluations_;
  std::optional<Records> records_;
  std::set<std::int64_t> done_;  // steps
  std::optional<engine::RunState> last_;
  engine::data::Sets sets_;
  std::unique_ptr<engine::Strategy> strategy_;
  std::unique_ptr<engine::Trainer> trainer_;
};

}  // namespace

bool is_evaluator(const TrainFlags& f) {
  if (!f.training.task.empty()) return true;
  const char* const text = strategies::tf_config_of_environment();
  if (text == nullptr || f.strategy == "mirrored" || strategies::launch().several()) return false;
  try {
    const auto cluster = strategies::parse_tf_config(text, strategies::ClusterUse::kEither);
    return cluster.task.role == strategies::Role::kEvaluator;
  } catch (const Error&) {
    return false;  // training reports it
  }
}

int run_evaluator(const TrainFlags& f, const Program& program) {
  engine::require(!f.files.checkpoints.empty(),
                  "an evaluator evaluates the checkpoints of a folder: name it with --checkpoints");
  const std::atomic<int>& interrupt = watch_signals();
  const SignalAnswer answer(interrupt, "the evaluator ends after this evaluation");
  return Evaluator(f, program).run(interrupt);
}

}  // namespace lockstep::tools
