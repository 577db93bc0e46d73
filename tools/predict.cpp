// SPDX-License-Identifier: MIT
// lockstep predict: runs the test data (or the training data) through the newest checkpoint of a
// folder. It prints CSV to standard output: index, label, then a probability or a logit per class.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <utility>

#include "engine/optim/optimizer.h"
#include "engine/train/trainer.h"
#include "models/registry.h"
#include "strategies/session/factories.h"
#include "strategies/synchronous/plan_record.h"
#include "tools/bounds.h"
#include "tools/command.h"
#include "tools/data_choice.h"
#include "tools/exit_codes.h"
#include "tools/help.h"
#include "tools/leaving.h"
#include "tools/standard_streams.h"
#include "tools/verbosity.h"

namespace lockstep::tools {
namespace {

constexpr std::size_t kPredictedAtOnce = std::size_t(1) << 16;  // bytes per write

struct PredictFlags {
  std::string checkpoints, data, split = "test";
  std::size_t batch = 100;
  std::optional<std::uint64_t> examples;
  int threads = 0;
  bool logits = false;
  Verbosity verbosity;
};

std::vector<double> softmax(std::span<const double> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p;
  double sum = 0;
  for (double logit : logits) sum += p.emplace_back(std::exp(logit - largest));
  for (double& value : p) value /= sum;
  return p;
}

// Returns the data that the flags name, or those of the run that wrote the checkpoint.
engine::data::Sets data_of(const PredictFlags& f, const engine::RunState& state,
                           const engine::GraphSpec& graph) {
  DataChoice choice = recorded_choice(state);
  const bool named = !f.data.empty() || f.examples;
  if (!f.data.empty()) choice.data = f.data, choice.test = "";
  if (named) choice.examples = f.examples;
  if (named) return choose_data(choice, graph);
  engine::data::Sets sets;
  try {
    sets = choose_data(choice, graph);
  } catch (const engine::Error& error) {
    throw engine::Error(
        error.code(), fmt::format("{}; the checkpoint was trained on {}: name its data with --data",
                                  error.what(), state.dataset));
  }
  engine::require(sets.train->fingerprint() == state.dataset_fingerprint,
                  "the checkpoint of step {} was trained on {}, and {} is {} now: name the data "
                  "with --data",
                  state.step, state.dataset,
                  choice.data.empty() ? "what the program draws" : choice.data,
                  sets.train->describe());
  return sets;
}

int predict(const PredictFlags& f, const Program& program) {
  together([] {
    const strategies::Launch launch = strategies::launch();
    const int processes = launch.launcher == "TF_CONFIG" ? 1 : launch.size;  // it starts nothing
    engine::require(processes == 1, "predict runs in one process, and {} were started", processes);
  });
  const engine::Log log(
      "", f.verbosity.verbose ? engine::Log::Level::kDebug : engine::Log::Level::kWarning);
  const auto storage = engine::posix_storage();
  const engine::Log silent("", engine::Log::Level::kError,
                           [](engine::Log::Level, std::string_view) {});
  engine::Checkpoints checkpoints(*storage, f.checkpoints, 1, silent);  // `restore` logs below
  engine::RunState state;
  const bool there =
      checkpoints.use_newest([&](std::int64_t step) { state = checkpoints.read_state(step); });
  if (!there) {
    engine::fail(engine::Code::kIo,
                 "there is no checkpoint in {}; lockstep train --checkpoints {} makes them",
                 f.checkpoints, f.checkpoints);
  }
  const engine::GraphSpec graph = recorded_graph(state);
  const engine::data::Sets sets = data_of(f, state, graph);
  for (const std::string& warning : sets.warnings) log.warning("{}", warning);
  const auto& data = f.split == "test" ? sets.test : sets.train;
  engine::require(data != nullptr, "the data has no test part: use --split train");

  strategies::Session session(program.argc, program.argv, {.launched = false, .log = log});
  strategies::StrategyOptions options;
  options.threads = f.threads;
  if (strategies::recorded_dtype(state.plan) == engine::DType::kBFloat16)
    options.step.dtype = engine::DType::kBFloat16;  // the dtype of training
  strategies::Mirrored strategy = strategies::mirrored(session, options);
  engine::TrainerOptions trainer_options;
  trainer_options.log = log;
  engine::Trainer trainer(strategy, graph, engine::optim::sgd(), trainer_options);
  state.step = trainer.restore(f.checkpoints).step;  // a run may have saved a newer one

  const std::size_t classes = graph.output_shape().elements();
  std::string header = "index,predicted";
  for (std::size_t c = 0; c < classes; ++c) header += fmt::format(",{}{}", f.logits ? "l" : "p", c);
  // Lines are printed in blocks, the first with the first results. An error before that leaves
  // nothing on standard output.
  std::string lines = header + "\n";
  const engine::Evaluation evaluation =
      trainer.predict(*data, f.batch, [&](std::int64_t example, std::span<const double> output) {
        const auto label = std::max_element(output.begin(), output.end()) - output.begin();
        lines += fmt::format("{},{}", example, label);
        const std::vector<double> p = softmax(output);
        for (std::size_t c = 0; c < classes; ++c) {
          lines += f.logits ? fmt::format(",{:.9g}", output[c]) : fmt::format(",{:.6g}", p[c]);
        }
        lines += '\n';
        if (lines.size() >= kPredictedAtOnce) print(std::exchange(lines, {}));
      });
  print(lines);
  const bool counts = graph.loss().counts_correct();
  std::string more =
      std::isnan(evaluation.top5) ? "" : fmt::format(" (top-5 {:.4f})", evaluation.top5);
  if (!std::isnan(evaluation.auc)) more += fmt::format(" (AUC {:.4f})", evaluation.auc);
  const std::string trained_on = sets.train->fingerprint() == state.dataset_fingerprint
                                     ? ""
                                     : fmt::format(" (trained on {})", state.dataset);
  if (f.verbosity.quiet) return kDone;
  std::fputs(fmt::format("step {}: {} {:.4f}{} on {}{}\n", state.step, counts ? "accuracy" : "loss",
                         counts ? evaluation.accuracy : evaluation.loss, more, data->describe(),
                         trained_on)
                 .c_str(),
             stderr);
  return kDone;
}

}  // namespace

Command add_predict(CLI::App& app) {
  auto f = std::make_shared<PredictFlags>();  // lives as long as the parser's callbacks
  app.option_defaults()->group("Data");
  app.add_option("--checkpoints", f->checkpoints, "folder of checkpoints")
      ->check(file_name("a folder"))
      ->required();
  app.add_option("--data", f->data,
                 "folder of IDX files or of CIFAR-10's .bin files; for wide_deep a file in "
                 "Criteo's text format (default: the data that the run was trained on)")
      ->check(file_name("a file or folder, or random"));
  app.add_option("--split", f->split, "part of the data")
      ->check(one_of({"test", "train"}))
      ->capture_default_str();
  app.add_option("--examples", f->examples,
                 "number of generated training examples, without --data (default: as many as the "
                 "run was trained on)")
      ->check(whole_number(1, 1'000'000));
  app.option_defaults()->group("Execution");
  app.add_option("--batch,--batch-size", f->batch, "examples per batch")
      ->check(whole_number(1, 100'000))
      ->capture_default_str();
  app.add_option("--threads", f->threads, "library threads; 0: all cores")
      ->check(whole_number(0, 4096))
      ->capture_default_str();
  app.option_defaults()->group("Output");
  app.add_flag("--logits", f->logits,
               "print logits (l0, l1, ...) instead of probabilities (p0, p1, ...)");
  declare(app, f->verbosity);
  end_help(app,
           "  lockstep predict --checkpoints runs/a > test.csv\n"
           "  lockstep predict --checkpoints runs/a --split train --logits");
  return [f](const Program& program) { return predict(*f, program); };
}

}  // namespace lockstep::tools
