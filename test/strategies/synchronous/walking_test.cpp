// SPDX-License-Identifier: MIT
// Properties that the design of lockstep must support, each with a deliberately broken variant that
// is detected. Two plans in flight on one thread are in test/collectives, and an asynchronous
// strategy behind the same port in asynchronous_test.cpp.
#include <gtest/gtest.h>

#include <map>

#include "engine/nn/layers.h"
#include "engine/train/staging.h"
#include "test/strategies/inspection.h"
#include "test/strategies/notebook.h"
#include "test/strategies/small_job.h"

// The broken variant of walk 2 is a race on purpose. The thread sanitizer, if present, calls this
// function for the reports to suppress.
extern "C" const char* __tsan_default_suppressions() {
  return "race:announce(bool\n";
}

namespace lockstep::test {
namespace walking_test {

constexpr int kSeeds = 200;

// A dense layer that reports when its weight gradient is final, and only then reads its weights for
// the gradient of its input. Graph must not announce the gradient until after that read.
class TellingDense : public engine::Layer {
 public:
  using Told = std::function<void(const engine::StepState*)>;
  TellingDense(std::size_t inputs, std::size_t outputs, const Told& told)
      : spec_{inputs, outputs, true, engine::Activation::kNone}, told_(told) {}
  std::string describe() const override { return "telling dense"; }
  engine::Shape output_shape(std::span<const engine::Shape>) const override {
    return {spec_.outputs};
  }
  std::vector<engine::ParameterSpec> parameters(std::span<const engine::Shape>) const override {
    return {{"weight",
             {spec_.outputs, spec_.inputs},
             engine::glorot_uniform(spec_.inputs, spec_.outputs)},
            {"bias", {spec_.outputs}, engine::constant(0), engine::Group::kBias}};
  }
  void forward(engine::Context& c, const engine::ForwardArguments& a) const override {
    c.ops->dense_forward(c.state, spec_, a.x[0], a.w[0], a.w[1], a.y);
  }
  void backward(engine::Context& c, const engine::BackwardArguments& a) const override {
    c.ops->dense_backward(c.state, spec_, a.x[0], a.y, a.dy, a.w[0], {}, a.dw[0], a.dw[1], false);
    told_(c.state);
    if (!a.dx[0]) return;
    engine::Tensor none;
    c.ops->dense_backward(c.state, spec_, a.x[0], a.y, a.dy, a.w[0], a.dx[0], none, none, false);
  }

 private:
  engine::DenseSpec spec_;
  const Told& told_;
};

// Trains TellingDense layers for some steps and returns the weights. Each range is announced when
// the layer reports it (too early) or when the graph does (right).
std::vector<double> train_telling_layers(bool too_early, std::function<void()> hook) {
  std::mutex mutex;
  std::map<const engine::StepState*, std::function<void()>> early;  // by replica
  const TellingDense::Told told = [&](const engine::StepState* state) {
    std::function<void()> tell;
    {
      std::scoped_lock lock(mutex);
      tell = early.count(state) ? early.at(state) : nullptr;
    }
    if (tell) tell();
  };
  engine::GraphSpec graph("telling", {64});
  graph.then("a", std::make_shared<TellingDense>(64, 63, told));
  graph.then("b", std::make_shared<TellingDense>(63, 63, told));
  graph.then("c", std::make_shared<TellingDense>(63, 63, told));
  graph.set_loss(engine::mean_squared_error());
  auto options = replicas(2);
  options.hook = std::move(hook);
  strategies::Mirrored strategy(options);
  strategy.open(graph, engine::optim::sgd({.momentum = 0.9}).rule, {11, 1, 1, {}});
  const Table data(39, 64, 63);
  engine::WorkSpec work{39, 11, 0, 6, {}, true};
  strategy.assign(work);
  strategy.run([&](engine::Replica& r) {
    engine::Pipeline pipeline(data, {.in_place = true});
    while (const auto next = strategy.next(r)) {
      pipeline.request(next->epoch, next->local_batch);
      engine::stage(r, pipeline.take(), next->step, next->global_batch, 0.02);
      r.graph.forward(*r.context, [&](engine::Range range) { strategy.before_forward(r, range); });
      r.graph.evaluate_loss(*r.context, true);
      // The graph announces layer by layer in ascending order, and so do the layers themselves.
      std::vector<engine::Range> ranges;
      std::size_t at = 0;  // the next range to announce
      if (too_early) {
        std::size_t begin = 0;
        for (std::size_t i = 0; i < r.graph.layout().size(); i += 2) {
          const bool last = i + 2 >= r.graph.layout().size();
          const std::size_t end = last ? r.graph.trainable() : r.graph.layout()[i + 2].range.begin;
          ranges.push_back({begin, end});
          begin = end;
        }
        std::scoped_lock lock(mutex);
        early[&r.state] = [&] { strategy.gradient_ready(r, ranges[at++]); };
      }
      r.graph.backward(*r.context, false, [&](engine::Range range) {
        if (!too_early) strategy.gradient_ready(r, range);
      });
      strategy.finish(r);
    }
  });
  return weights(strategy, 0);
}

TEST(Walk2, FusedUpdatesRunBesideBackwardWithoutATornReadOfAWeight) {
  const Outcome still = train_mirrored({}, replicas(3));
  std::int64_t overlapped = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    auto options = replicas(3);
    options.hook = delays(seed);
    options.communication_thread = seed % 2 == 1;
    const Outcome delayed = train_mirrored({}, options);
    ASSERT_EQ(delayed.weights, still.weights) << "seed " << seed;
    overlapped += delayed.overlapped;
  }
  EXPECT_GT(overlapped, 0) << "no update was done before backward had ended: nothing was shown";
}

TEST(Walk2, BrokenAnAnnouncementBeforeTheLayerHasReadItsWeightsIsNoticed) {
  const std::vector<double> still = train_telling_layers(false, {});
  int different = 0, same = 0;
  for (int seed = 0; seed < 20; ++seed) {
    different += train_telling_layers(true, delays(seed)) != still;
    same += train_telling_layers(false, delays(seed)) == still;
  }
  EXPECT_GT(different, 10);
  EXPECT_EQ(same, 20);
}

TEST(Walk3, AReductionInsideForwardRunsBesideBucketsInFlight) {
  std::int64_t beside = 0;
  for (double clip : {0.0, 0.05}) {
    Job job;
    job.centre = true;
    job.optimizer = engine::optim::sgd({.rate = 0.02, .momentum = 0.9, .clip_norm = clip});
    const Outcome still = train_mirrored(job, replicas(3));
    for (int seed = 0; seed < kSeeds / 4; ++seed) {
      auto options = replicas(3);
      options.hook = delays(seed);
      options.communication_thread = seed % 2 == 1;
      const Outcome delayed = train_mirrored(job, options);
      ASSERT_EQ(delayed.weights, still.weights) << "clip " << clip << " seed " << seed;
      beside += delayed.reductions_beside;
    }
  }
  EXPECT_GT(beside, 0) << "no reduction met a bucket in flight: nothing was shown";
}

TEST(Walk3, BrokenALayerThatUsesItsOwnSumsAloneBreaksEqualWork) {
  // Without the reduction, the layer uses one replica's mean instead of the batch's.
  Job with, without;
  with.centre = true;
  without.centre = false;
  const Outcome one = train_mirrored(with, replicas(1)), three = train_mirrored(with, replicas(3));
  EXPECT_LT(difference(one.weights[0], three.weights[0]), 1e-10);
  EXPECT_GT(difference(one.weights[0], train_mirrored(without, replicas(1)).weights[0]), 1e-3);
}

// With two layers on two devices, forward uses the local copy and backward starts at the last
// layer. The last layer's gradients are in flight while the first layer's are computed; then the
// update runs.
TEST(Trace, TwoLayersOnTwoDevicesGoThroughAStepInThisOrder) {
  struct Trace : engine::Observer {
    void layer(const std::string& name, Pass pass, engine::Clock::time_point,
               engine::Clock::time_point, engine::Tensor) override {
      events.push_back((pass == Pass::kForward ? "forward " : "backward ") + name);
    }
    std::vector<std::string> events;
  };
  engine::GraphSpec graph("walk", {20});
  graph.then("A", engine::dense(64));
  graph.then("B", engine::dense(32));
  graph.set_loss(engine::mean_squared_error());
  strategies::Mirrored strategy(replicas(2));
  strategy.open(graph, engine::optim::sgd().rule, {11, 1, 1, {}, {}});
  const Table data(11, 20, 32);
  strategy.assign({11, 11, 0, 2, {}, true});
  std::vector<std::string> events[2];
  strategy.run([&](engine::Replica& r) {
    Trace trace;
    r.graph.observe(&trace);
    auto bucket_of = [&](engine::Range range) { return range.begin == 0 ? "B" : "A"; };
    engine::Pipeline pipeline(data, {.in_place = true});
    while (const auto work = strategy.next(r)) {
      pipeline.request(work->epoch, work->local_batch);
      engine::stage(r, pipeline.take(), work->step, work->global_batch, 0.01);
      r.graph.forward(*r.context, [&](engine::Range range) {
        strategy.before_forward(r, range);
        trace.events.push_back(std::string("updated ") + bucket_of(range));
      });
      r.graph.evaluate_loss(*r.context, true);
      r.graph.backward(*r.context, false, [&](engine::Range range) {
        strategy.gradient_ready(r, range);
        trace.events.push_back(std::string("ready ") + bucket_of(range));
      });
      strategy.finish(r);
    }
    r.graph.observe(nullptr);
    events[r.rank] = trace.events;
  });
  const std::vector<std::string> step = {"updated A",  "forward A", "updated B",  "forward B",
                                         "backward B", "ready B",   "backward A", "ready A"};
  std::vector<std::string> wanted = step;
  wanted.insert(wanted.end(), step.begin(), step.end());
  EXPECT_EQ(events[0], wanted);
  EXPECT_EQ(events[1], wanted);
}

// Trains like `train`, but captures the first step and replays it for all others. The broken
// variant, with `change_state` false, also replays the first step's rate and examples.
std::vector<std::vector<double>> replayed(const Job& job, bool change_state) {
  strategies::Mirrored strategy(replicas(2));
  strategy.open(small_graph(job), job.optimizer.rule, {11, 1, 1, {}});
  const Table data = small_data();
  strategy.assign({39, 11, 0, job.steps, {}, true});
  strategy.run([&](engine::Replica& r) {
    engine::Pipeline pipeline(data, {.seed = 1, .in_place = true});
    Notebook notebook;
    engine::Ops& kernels = *r.context->ops;
    RecordingOps ops(kernels, notebook);
    RecordingContext context(*r.context, ops, notebook);
    while (const auto work = strategy.next(r)) {
      pipeline.request(work->epoch, work->local_batch);
      const engine::StepState before = r.state;
      engine::stage(r, pipeline.take(), work->step, work->global_batch,
                    job.optimizer.schedule.rate(job.optimizer.rate, work->step, job.steps));
      if (!notebook.empty()) {
        if (!change_state) r.state = before;
        notebook.replay();
        continue;
      }
      r.graph.forward(context, [&](engine::Range range) {
        notebook.note([&, range] { strategy.before_forward(r, range); });
      });
      r.graph.evaluate_loss(context, true);
      r.graph.backward(context, false, [&](engine::Range range) {
        notebook.note([&, range] { strategy.gradient_ready(r, range); });
      });
      notebook.note([&] { strategy.finish(r); });
    }
  });
  return {weights(strategy, 0), weights(strategy, 1)};
}

TEST(Walk4, AStepReplayedWithNothingButStepStateChangedIsTheStepThatWasAskedFor) {
  for (double clip : {0.0, 0.05}) {
    for (bool adam : {false, true}) {
      Job job;
      job.centre = true;
      job.dropout = 0.3;
      job.optimizer = adam ? engine::optim::adam({.rate = 0.01, .clip_norm = clip})
                           : engine::optim::sgd({.rate = 0.02, .momentum = 0.9, .clip_norm = clip});
      EXPECT_EQ(replayed(job, true), train_mirrored(job, replicas(2)).weights);
    }
  }
}

TEST(Walk4, BrokenAReplayWithoutItsStepStateIsNoticed) {
  EXPECT_NE(replayed({}, false), train_mirrored({}, replicas(2)).weights);
}

// Communication threads change no bits between hosts either, where they sleep on sockets.
TEST(Walk2, CommunicationThreadsBesideConnectionsChangeNoBit) {
  for (const std::vector<int>& host : {std::vector<int>{0, 1}, {0, 0, 1}, {0, 1, 2}}) {
    const Outcome alone = train_collective({}, replicas(1), host);
    for (int seed = 0; seed < kSeeds / 4; ++seed) {
      auto helped = replicas(1);
      helped.communication_thread = true;
      helped.hook = delays(seed);
      ASSERT_EQ(train_collective({}, helped, host).weights, alone.weights) << "seed " << seed;
    }
  }
}

}  // namespace walking_test
}  // namespace lockstep::test
