// SPDX-License-Identifier: MIT
// A restarted run makes and reports the remaining steps. One run at a time saves into a folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <new>
#include <thread>

#include "test/strategies/inspection.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace resume_test {

using engine::Code;
using engine::Error;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

namespace fs = std::filesystem;

class Resume : public testing::Test {
 protected:
  Resume() {
    std::string name = (fs::temp_directory_path() / "lockstep-resume-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~Resume() override { fs::remove_all(folder_); }

  // Runs a fit with 39 examples per epoch. said_ gets its log, and epochs_ the epochs that end.
  engine::History fit(engine::FitOptions options, engine::optim::Optimizer optimizer = sgd()) {
    said_.clear();
    epochs_.clear(), trained_.clear(), resumed_.clear();
    strategies::Mirrored strategy(replicas(2));
    engine::TrainerOptions trainer_options;
    trainer_options.log = engine::Log("", engine::Log::Level::kInfo,
                                      [this](auto, std::string_view line) { said_ += line; });
    engine::Trainer trainer(strategy, small_graph({}), optimizer, trainer_options);
    if (options.checkpoints.empty()) options.checkpoints = folder_;
    options.prefetch_threads = 0;
    options.on_epoch = [&](const engine::EpochReport& report) {
      epochs_.push_back(report.number);
      trained_.push_back(report.examples);
      resumed_.push_back(report.resumed);
    };
    return trainer.fit(small_data(), options);
  }
  static engine::optim::Optimizer sgd() {
    return engine::optim::sgd({.rate = 0.02, .momentum = 0.9});
  }
  std::string folder_, said_;
  std::vector<std::int64_t> epochs_;
  std::vector<std::size_t> trained_;
  std::vector<bool> resumed_;
};

TEST_F(Resume, EpochsAreCountedFromWhereTheDataStandWhateverTheBatchWas) {
  EXPECT_EQ(fit({.epochs = 2, .global_batch = 11}).steps, 8);
  EXPECT_EQ(fit({.epochs = 3, .global_batch = 5}).steps, 8 + 8);
  EXPECT_THAT(epochs_, ElementsAre(3));
  EXPECT_THAT(said_, HasSubstr("continues after step 8 of 16"));
  EXPECT_EQ(fit({.epochs = 4, .global_batch = 39}).steps, 16 + 1);
  EXPECT_THAT(epochs_, ElementsAre(4));
}

TEST_F(Resume, EpochsAreCountedFromWithinAnEpoch) {
  EXPECT_EQ(fit({.steps = 6, .global_batch = 11}).steps, 6);  // 17 examples of epoch 2 are left
  EXPECT_EQ(fit({.epochs = 3, .global_batch = 5, .every = 3}).steps, 6 + 4 + 8);
  EXPECT_THAT(epochs_, ElementsAre(2, 3));
  EXPECT_THAT(trained_, ElementsAre(17, 39));  // examples of each in this run
  EXPECT_THAT(resumed_, ElementsAre(true, false));
}

TEST_F(Resume, ARunThatIsFinishedSaysSoAndNothingOfWhatItDoesNotUse) {
  fit({.epochs = 2, .global_batch = 11});
  const engine::optim::Optimizer adam = engine::optim::adam({.rate = 0.003});
  for (const auto& [epochs, words] :
       {std::pair(2, "nothing left to train: the checkpoint is at step 8 of 8"),
        std::pair(
            1,
            "nothing left to train: the checkpoint of step 8 has finished 2 epochs, and 1 was "
            "asked for")}) {
    const engine::History history = fit({.epochs = epochs, .global_batch = 11}, adam);
    EXPECT_EQ(history.steps, 8);
    EXPECT_EQ(history.first_step, 8);
    EXPECT_THAT(said_, AllOf(HasSubstr(words), Not(HasSubstr("at zero: the checkpoint has none")),
                             Not(HasSubstr("continues")), Not(HasSubstr("now it is"))));
  }
  fit({.epochs = 3, .global_batch = 11}, adam);
  EXPECT_THAT(said_, AllOf(HasSubstr("at zero: the checkpoint has none"),
                           HasSubstr("continues after step 8 of 12"), HasSubstr("instead of sgd"),
                           HasSubstr("12 steps instead of 8")));
}

// The second trainer's weights replace those of the first, which must not evaluate them.
TEST(TwoTrainers, OfOneStrategyAreNotMistakenForEachOther) {
  engine::GraphSpec graph("small", {20});
  graph.then("dense", engine::dense(5));
  graph.set_loss(engine::mean_squared_error());
  strategies::Mirrored strategy(replicas(2));
  engine::Trainer one(strategy, graph, engine::optim::sgd()),
      two(strategy, graph, engine::optim::sgd());
  const engine::FitOptions steps{.steps = 2, .global_batch = 11};
  one.fit(small_data(), steps);
  one.evaluate(small_data());
  two.fit(small_data(), steps);
  two.evaluate(small_data());
  const auto refused = [](const auto& body) {
    try {
      body();
    } catch (const engine::Error& error) {
      return error.code() == engine::Code::kInvalid &&
             std::string_view(error.what()).find("another trainer") != std::string_view::npos;
    }
    return false;
  };
  EXPECT_TRUE(refused([&] { one.evaluate(small_data()); }));
  EXPECT_TRUE(refused([&] { one.fit(small_data(), steps); }));
  two.fit(small_data(), steps);  // its own weights are still there
}

// Buffers of another batch come with new weights, so restored ones are read again, and trained ones
// must not be lost without a word.
TEST_F(Resume, AnotherBatchKeepsRestoredWeightsAndRefusesToLoseTrainedOnes) {
  fit({.steps = 8, .global_batch = 11});
  strategies::Mirrored strategy(replicas(2));
  engine::Trainer trainer(strategy, small_graph({}), sgd());
  trainer.restore(folder_);
  const auto restored = weights(strategy, 0);
  trainer.fit(small_data(), {.epochs = 0, .global_batch = 5});
  EXPECT_EQ(weights(strategy, 0), restored);
  trainer.fit(small_data(), {.steps = 2, .global_batch = 5});
  const auto trained = weights(strategy, 0);
  EXPECT_NE(trained, restored);
  try {
    trainer.fit(small_data(), {.steps = 2, .global_batch = 11});
    FAIL() << "trained weights were lost";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalid);
    EXPECT_THAT(error.what(), HasSubstr("trained with batch 5"));
  }
  EXPECT_EQ(weights(strategy, 0), trained);
  // A folder without checkpoints keeps the weights, too.
  trainer.fit(small_data(), {.epochs = 0, .global_batch = 5, .checkpoints = folder_ + "/new"});
  EXPECT_EQ(weights(strategy, 0), trained);
  trainer.restore(folder_);
  trainer.fit(small_data(), {.epochs = 0, .global_batch = 5, .checkpoints = folder_ + "/newer"});
  EXPECT_EQ(weights(strategy, 0), restored);
  // A folder whose run is finished has trained weights.
  trainer.fit(small_data(), {.steps = 8, .global_batch = 11, .checkpoints = folder_});
  EXPECT_EQ(weights(strategy, 0), restored);
  EXPECT_THROW(trainer.fit(small_data(), {.steps = 2, .global_batch = 5}), Error);
}

TEST_F(Resume, ACheckpointIsNoFolderOfCheckpoints) {
  fit({.steps = 2, .global_batch = 11});
  for (const char* end : {"/step-0000000002", "/step-0000000002/", "/./step-0000000002//"}) {
    try {
      fit({.steps = 4, .global_batch = 11, .checkpoints = folder_ + end});
      FAIL() << end << " was taken for a folder of checkpoints";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalid);
      EXPECT_THAT(error.what(), testing::EndsWith("name the folder above it: " + folder_));
    }
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ + "/step-0000000002"), {}), 3);
}

struct Way {
  std::string name;
  std::vector<int> host;  // host of each process; empty: Mirrored
};

Outcome run(const Job& job, const Way& way) {
  return way.host.empty() ? train_mirrored(job, replicas(2))
                          : train_collective(job, replicas(2), way.host);
}

TEST_F(Resume, ASecondRunIntoTheFolderIsRefusedAndTheFirstLosesNothing) {
  for (const Way& way : {Way{"mirrored", {}}, Way{"processes", {0, 0}}, Way{"hosts", {0, 1}}}) {
    Job job;
    const Outcome alone = run(job, way);
    job.checkpoints = folder_ + "/" + way.name;
    job.every = 5;
    Job second = job;
    std::string error = "nothing";
    job.on_step = [&](const engine::StepReport& report) {
      if (report.step != 12) return;
      try {
        run(second, way);
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), Code::kIo);
        error = e.what();
      }
    };
    const Outcome first = run(job, way);
    EXPECT_THAT(error, AllOf(HasSubstr(job.checkpoints + " is in use: pid "),
                             HasSubstr(std::to_string(getpid()))))
        << way.name;
    EXPECT_EQ(first.history.steps, 20) << way.name;
    EXPECT_EQ(first.weights, alone.weights) << way.name;
    EXPECT_EQ(run(second, way).history.first_step, 20) << way.name;  // the folder is free again
  }
}

// Returns the error of each process after all run `body` together.
std::vector<std::string> together(const std::vector<int>& host,
                                  const std::function<void(int process)>& body) {
  const auto bootstraps = collectives::in_memory_bootstrap(host, std::chrono::seconds(20));
  std::vector<std::string> thrown(host.size());
  std::vector<std::thread> processes;
  for (int p = 0; p < int(host.size()); ++p) {
    processes.emplace_back([&, p] {
      strategies::CollectiveAllReduce strategy(replicas(1), *bootstraps[std::size_t(p)]);
      try {
        strategy.run_collectively([&] { body(p); }, "a test");
      } catch (const Error& error) {
        thrown[std::size_t(p)] = std::string(engine::name(error.code())) + ": " + error.what();
      }
    });
  }
  for (std::thread& process : processes) process.join();
  return thrown;
}

TEST(Together, WhatOneProcessThrowsAllThrow) {
  EXPECT_THAT(together({0, 0, 1}, [](int) {}), ElementsAre("", "", ""));
  const std::string wrong = "io: 7 of 9: a text";
  EXPECT_THAT(together({0, 0, 1},
                       [](int process) {
                         if (process > 0) engine::fail(Code::kIo, "{} of 9: a text", 6 + process);
                       }),
              ElementsAre(wrong, wrong, wrong));
  const std::string other = "io: a test: std::bad_alloc";  // not an engine::Error
  EXPECT_THAT(together({0, 0},
                       [](int process) {
                         if (process == 1) throw std::bad_alloc();
                       }),
              ElementsAre(other, other));
}

}  // namespace resume_test
}  // namespace lockstep::test
