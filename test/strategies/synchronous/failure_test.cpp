// SPDX-License-Identifier: MIT
// Law 4: no rank waits forever, and the error names the collective and the missing ranks.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <functional>
#include <thread>

#include "engine/checkpoint/checkpoint.h"
#include "engine/train/staging.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace failure_test {

using engine::Code;
using engine::Error;

// Trains without a trainer; returns the error's text. `at_step` may throw, or end by returning
// false.
std::string train_by_hand(strategies::Synchronous& strategy,
                          const std::function<bool(int rank, std::int64_t step)>& at_step,
                          Code* code = nullptr, const engine::GraphSpec& graph = small_graph({})) {
  strategy.open(graph, Job().optimizer.rule, {11, 1, 1, {}});
  const Table data = small_data();
  strategy.assign({39, 11, 0, 20, {}, true});
  try {
    strategy.run([&](engine::Replica& r) {
      engine::Pipeline pipeline(data, {.seed = 1, .in_place = true});
      while (const auto work = strategy.next(r)) {
        if (!at_step(r.rank, work->step)) return;
        pipeline.request(work->epoch, work->local_batch);
        engine::stage(r, pipeline.take(), work->step, work->global_batch, 0.01);
        r.graph.forward(*r.context, [&](engine::Range x) { strategy.before_forward(r, x); });
        r.graph.evaluate_loss(*r.context, true);
        r.graph.backward(*r.context, false,
                         [&](engine::Range x) { strategy.gradient_ready(r, x); });
        strategy.finish(r);
      }
    });
  } catch (const Error& error) {
    if (code != nullptr) *code = error.code();
    return error.what();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Law4, AReplicaThatGoesSilentIsNamedWithTheBucketAndWhoArrived) {
  for (const char* algorithm : {"direct", "ring"}) {
    auto options = replicas(3);
    options.deadline = std::chrono::milliseconds(300);
    options.step.algorithm = algorithm;
    strategies::Mirrored strategy(options);
    Code code = Code::kInvalid;
    const std::string text = train_by_hand(
        strategy, [](int rank, std::int64_t step) { return rank != 2 || step != 5; }, &code);
    EXPECT_EQ(code, Code::kTimeout) << text;
    EXPECT_NE(text.find("bucket"), std::string::npos) << text;
    EXPECT_NE(text.find("dense"), std::string::npos) << text;
    EXPECT_NE(text.find("missing"), std::string::npos) << text;
    if (std::string(algorithm) == "direct") {
      EXPECT_NE(text.find("rank 2 is missing"), std::string::npos) << text;
    }
  }
}

// A table that cannot deliver example 17: it throws, or returns a class that does not exist.
class Unreadable : public Table {
 public:
  enum class How : std::uint8_t { kException, kNoException, kError, kClass };
  explicit Unreadable(How how) : Table(39, 20, 1), how_(how) {}
  void read(std::uint64_t index, std::span<float> input, std::span<float> target) const override {
    Table::read(index, input, target);
    target[0] = float(index % 5);
    if (index != 17) return;
    if (how_ == How::kException) throw std::runtime_error("no such image");
    if (how_ == How::kNoException) throw 17;
    if (how_ == How::kError) throw Error(Code::kCorrupt, "a checksum is wrong");
    target[0] = 5;
  }

 private:
  How how_;
};

// Returns the errors of `processes` processes, with two replicas each, in an epoch of training.
std::vector<std::string> said_of(const engine::Dataset& data, int processes, int prefetch) {
  const std::vector<int> host(std::size_t(processes), 0);
  const auto bootstraps = collectives::in_memory_bootstrap(host, std::chrono::seconds(20));
  std::vector<std::string> said(host.size());
  std::vector<std::thread> threads;
  for (std::size_t p = 0; p < host.size(); ++p)
    threads.emplace_back([&, p] {
      try {
        strategies::CollectiveAllReduce strategy(replicas(2), *bootstraps[p]);
        engine::GraphSpec graph("classes", {20});
        graph.then("dense", engine::dense(5));
        graph.set_loss(engine::softmax_cross_entropy());
        engine::Trainer trainer(strategy, graph, engine::optim::sgd());
        engine::FitOptions fit;
        fit.global_batch = 11;
        fit.prefetch_threads = prefetch;
        trainer.fit(data, fit);
      } catch (const Error& error) {
        said[p] = error.what();
      } catch (const std::exception& error) {
        said[p] = std::string("no Error: ") + error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return said;
}

TEST(Law4, WhatADataSetThrowsIsAnErrorOfAllProcessesThatNamesTheExample) {
  using How = Unreadable::How;
  for (const auto& [how, text] : {std::pair{How::kException, "no such image"},
                                  {How::kNoException, "no std::exception"},
                                  {How::kError, "a checksum is wrong"},
                                  {How::kClass, "has the class 5"}}) {
    for (const int prefetch : {0, 1}) {
      for (const std::string& said : said_of(Unreadable(how), 2, prefetch)) {
        EXPECT_THAT(said,
                    testing::AllOf(testing::HasSubstr("example 17 "), testing::HasSubstr(text),
                                   testing::Not(testing::HasSubstr("no Error"))));
      }
    }
  }
}

// The error has at most 1,023 bytes and names the missing rank, even for many parameters in a
// bucket.
TEST(Law4, ABucketOfManyParametersIsNamedInFewWords) {
  engine::GraphSpec graph("deep", {20});
  for (int layer = 0; layer < 40; ++layer)
    graph.then(fmt::format("block{}.residual_branch.projection", layer), engine::dense(5));
  graph.set_loss(engine::mean_squared_error());
  auto options = replicas(3);
  options.deadline = std::chrono::milliseconds(300);
  options.step.algorithm = "direct";
  options.step.bucket_bytes = std::size_t(1) << 20;
  strategies::Mirrored strategy(options);
  const std::string text = train_by_hand(
      strategy, [](int rank, std::int64_t step) { return rank != 2 || step != 5; }, nullptr, graph);
  EXPECT_THAT(text, testing::ContainsRegex("bucket 0 .block39.residual_branch.projection.* "
                                           "... and 7[0-9] more.: sum and update .direct"));
  EXPECT_THAT(text, testing::StartsWith("rank 2 is missing: "));
  EXPECT_LE(text.size(), 500u);
}

TEST(Law4, AReplicaThatThrowsEndsAllOthersAtOnceWithItsText) {
  for (const char* algorithm : {"direct", "ring"}) {
    auto options = replicas(3);
    options.deadline = std::chrono::minutes(10);  // longer than the test may take
    options.step.algorithm = algorithm;
    strategies::Mirrored strategy(options);
    const std::string text = train_by_hand(strategy, [](int rank, std::int64_t step) {
      if (rank == 1 && step == 5) throw std::runtime_error("a broken example");
      return true;
    });
    EXPECT_EQ(text, "a broken example");
  }
}

TEST(Law4, AProcessWhoseReplicaThrowsEndsTheOtherProcesses) {
  for (int way = 0; way < 4; ++way) {
    const std::vector<int> host{0, way / 2};
    const bool helped = way % 2 == 1;
    SCOPED_TRACE(fmt::format("{} hosts, communication threads: {}", host[1] + 1, helped));
    const auto bootstraps = collectives::in_memory_bootstrap(host, std::chrono::seconds(20));
    std::string text[2];
    std::vector<std::thread> processes;
    for (int p = 0; p < 2; ++p) {
      processes.emplace_back([&, p] {
        auto options = replicas(2);
        options.deadline = std::chrono::minutes(10);
        options.communication_thread = helped;
        strategies::CollectiveAllReduce strategy(options, *bootstraps[std::size_t(p)]);
        text[p] = train_by_hand(strategy, [](int rank, std::int64_t step) {
          if (rank == 3 && step == 5) throw std::runtime_error("a broken example");
          return true;
        });
      });
    }
    for (std::thread& process : processes) process.join();
    EXPECT_EQ(text[1], "a broken example");
    EXPECT_NE(text[0].find("a broken example"), std::string::npos) << text[0];
  }
}

// Returns what `fit` throws in each of two processes. `change` sets callbacks, which may call the
// trainer.
std::array<std::string, 2> errors_of_fit(
    int other_host, const std::function<void(engine::FitOptions&, engine::Trainer&)>& change) {
  const auto bootstraps =
      collectives::in_memory_bootstrap({0, other_host}, std::chrono::seconds(20));
  std::array<std::string, 2> text;
  std::vector<std::thread> processes;
  for (int p = 0; p < 2; ++p) {
    processes.emplace_back([&, p] {
      auto options = replicas(2);
      options.deadline = std::chrono::minutes(10);
      strategies::CollectiveAllReduce strategy(options, *bootstraps[std::size_t(p)]);
      engine::Trainer trainer(strategy, small_graph({}), engine::optim::sgd());
      engine::FitOptions fit{.epochs = 3, .global_batch = 11};
      change(fit, trainer);
      try {
        const engine::History history = trainer.fit(small_data(), fit);
        EXPECT_EQ(std::isnan(history.loss), p == 1);  // the chief knows it
      } catch (const std::exception& error) {
        text[std::size_t(p)] = error.what();
      }
    });
  }
  for (std::thread& process : processes) process.join();
  return text;
}

// Callbacks of `fit` run between steps, while the other processes wait for the next.
TEST(Law4, AProcessWhoseCallbackThrowsEndsTheOtherProcesses) {
  const auto full = [](const auto&...) { throw std::runtime_error("a full disk"); };
  const std::function<void(engine::FitOptions&)> callbacks[] = {
      [&](engine::FitOptions& fit) { fit.on_open = full; },
      [&](engine::FitOptions& fit) { fit.on_epoch = full; },
      [&](engine::FitOptions& fit) {
        static const Table data = small_data();
        fit.test = &data;
        fit.on_evaluation = full;
      }};
  for (const int other_host : {0, 1})
    for (const auto& callback : callbacks) {
      const auto text = errors_of_fit(other_host, [&](auto& fit, auto&) { callback(fit); });
      EXPECT_EQ(text[0], "a full disk");
      EXPECT_THAT(text[1], testing::HasSubstr("a full disk")) << other_host;
    }
}

TEST(Law4, ACallbackCannotEvaluateWhileOtherProcessesWait) {
  const auto text = errors_of_fit(0, [](engine::FitOptions& fit, engine::Trainer& trainer) {
    fit.on_epoch = [&](const auto&) { trainer.evaluate(small_data()); };
  });
  for (const std::string& one : text)
    EXPECT_THAT(one, testing::HasSubstr("evaluate was called from a callback, while other"));
  const auto none = errors_of_fit(1, [](auto&, auto&) {});
  EXPECT_EQ(none[0] + none[1], "");
}

// Calls of the trainer from its callbacks would wait for replicas that wait for the callback.
TEST(Law4, CallbacksThatCallTheTrainerAreRefused) {
  strategies::Mirrored strategy(replicas(2));
  engine::Trainer trainer(strategy, small_graph({}), engine::optim::sgd());
  engine::FitOptions fit{.epochs = 2, .global_batch = 11};
  const auto text = [&] {
    try {
      trainer.fit(small_data(), fit);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalid);
      return std::string(error.what());
    }
    return std::string();
  };
  int evaluated = 0;
  fit.on_epoch = [&](const auto&) { evaluated += trainer.evaluate(small_data()).loss > 0; };
  EXPECT_EQ(text(), "");
  EXPECT_EQ(evaluated, 2);
  fit.on_epoch = [&](const auto&) { trainer.fit(small_data(), fit); };
  EXPECT_THAT(text(), testing::StartsWith("fit was called from a callback"));
  fit.on_epoch = {};
  fit.on_step = [&](const auto&) { trainer.evaluate(small_data()); };
  EXPECT_THAT(text(), testing::StartsWith("evaluate was called from a callback"));
}

TEST(Law4, AfterAnErrorOfFitTheWeightsAreRefusedAndTheNextFitBeginsAnew) {
  strategies::Mirrored strategy(replicas(2)), other(replicas(2));
  engine::Trainer trainer(strategy, small_graph({}), engine::optim::sgd());
  engine::Trainer fresh(other, small_graph({}), engine::optim::sgd());
  engine::FitOptions fit{.epochs = 2, .global_batch = 11};
  fresh.fit(small_data(), fit);
  fit.on_step = [](const engine::StepReport& report) {
    if (report.step == 3) throw std::runtime_error("a full disk");
  };
  EXPECT_THROW(trainer.fit(small_data(), fit), std::runtime_error);
  EXPECT_THROW(trainer.evaluate(small_data()), Error);
  fit.on_step = {};
  trainer.fit(small_data(), fit);
  EXPECT_EQ(trainer.evaluate(small_data()).loss, fresh.evaluate(small_data()).loss);
}

// A neighbor may report a death before this process notices it. Then it waits for no common end.
TEST(Law4, ADeathThatOthersToldOfEndsTheJobWithoutWaiting) {
  const auto bootstraps = collectives::in_memory_bootstrap({0}, std::chrono::seconds(20));
  strategies::CollectiveAllReduce strategy(replicas(2), *bootstraps[0]);
  strategy.abort(Error(Code::kInvalid, "ranks ask for different things"));
  EXPECT_NO_THROW(bootstraps[0]->throw_if_abandoned());
  strategy.abort(Error(Code::kPeerLost, "rank 1 (pid 4711) died"));
  try {
    bootstraps[0]->throw_if_abandoned();
    FAIL() << "the job would end as if all were there";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kPeerLost);
    EXPECT_THAT(error.what(), testing::HasSubstr("4711"));
  }
}

// Saves a checkpoint's part on rank 0 only. The other ranks wait until it gives up.
class OneSaves final : public strategies::Mirrored {
 public:
  using Mirrored::Mirrored;
  std::vector<engine::Shard> save(engine::Replica& replica, engine::Checkpoints& checkpoints,
                                  std::int64_t step, std::string_view what) override {
    if (replica.rank == 0) return Mirrored::save(replica, checkpoints, step, what);
    given_up_.wait(false);
    engine::fail(Code::kAborted, "rank {} saved nothing", replica.rank);
  }
  void abort(const Error& error) noexcept override {
    Mirrored::abort(error);
    given_up_ = true;
    given_up_.notify_all();
  }

 private:
  std::atomic<bool> given_up_ = false;
};

TEST(Law4, SavingOnOneRankOnlyIsAnErrorThatSaysSo) {
  std::string folder = testing::TempDir() + "lockstep-failure-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  auto options = replicas(4);
  options.deadline = std::chrono::seconds(1);  // so that no late thread is named
  OneSaves strategy(options);
  Job job;
  job.steps = 2;
  job.checkpoints = folder + "/runs";
  try {
    train(strategy, job, nullptr);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kTimeout);
    EXPECT_THAT(error.what(), testing::HasSubstr("saving step 2: all ranks must save together"));
    EXPECT_THAT(error.what(), testing::StartsWith("ranks 1 2 3 are missing: "));
  }
  EXPECT_FALSE(std::filesystem::exists(job.checkpoints + "/step-0000000002"));
  std::filesystem::remove_all(folder);
}

TEST(Law4, AfterAnErrorTheStrategyCanBeOpenedAfresh) {
  auto options = replicas(3);
  strategies::Mirrored strategy(options);
  EXPECT_EQ(train_by_hand(strategy,
                          [](int rank, std::int64_t step) {
                            if (rank == 1 && step == 5) throw std::runtime_error("once");
                            return true;
                          }),
            "once");
  EXPECT_EQ(train_by_hand(strategy, [](int, std::int64_t) { return true; }), "nothing was thrown");
}

TEST(NotFinite, TheRunStopsAndNamesLayerAndStep) {
  Job job;
  job.optimizer = engine::optim::sgd({.rate = 1e200, .momentum = 0.9});
  for (int count : {1, 3}) {
    try {
      train_mirrored(job, replicas(count));
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("not finite at step"), std::string::npos) << text;
      EXPECT_NE(text.find("dense"), std::string::npos) << text;
    }
  }
}

}  // namespace failure_test
}  // namespace lockstep::test
