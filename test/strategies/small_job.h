// SPDX-License-Identifier: MIT
// Small training jobs for the laws: three dense layers in float64 on the reference device, four
// buckets, and 39 examples in batches of 11 (so the last of an epoch has 6). They run under any
// strategy and number of replicas, in one process or in several, which are threads here.
#pragma once
#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/data/dataset.h"
#include "engine/nn/graph_spec.h"
#include "engine/nn/layers.h"
#include "engine/nn/loss.h"
#include "engine/optim/optimizer.h"
#include "engine/train/trainer.h"
#include "strategies/synchronous/collective_all_reduce.h"
#include "strategies/synchronous/mirrored.h"

namespace lockstep::test {

// Holds numbers without a pattern, the same on every machine.
class Table : public engine::Dataset {
 public:
  Table(std::uint64_t examples, std::size_t inputs, std::size_t targets)
      : examples_(examples), inputs_(inputs), targets_(targets) {}
  std::uint64_t size() const override { return examples_; }
  engine::Shape input_shape() const override { return {inputs_}; }
  std::size_t target_columns() const override { return targets_; }
  void read(std::uint64_t index, std::span<float> input, std::span<float> target) const override;
  std::string describe() const override { return "a table"; }
  std::uint64_t fingerprint() const override { return examples_ * 1000 + inputs_; }

 private:
  std::uint64_t examples_;
  std::size_t inputs_, targets_;
};

// Raises a signal when one of its thousand examples is read.
class Interrupting : public Table {
 public:
  explicit Interrupting(std::atomic<int>& interrupt) : Table(1000, 20, 5), interrupt_(interrupt) {}
  void read(std::uint64_t index, std::span<float> input, std::span<float> target) const override {
    interrupt_ = 15;
    ++read_;
    Table::read(index, input, target);
  }
  int read() const { return read_; }

 private:
  std::atomic<int>& interrupt_;
  mutable std::atomic<int> read_ = 0;
};

// Returns the layer y = x - mean of x over the global batch. It is the smallest layer that must
// communicate with other replicas in both directions.
engine::LayerPtr centre();

// Returns the layer y = scale x + shift, element by element, as after a normalization.
engine::LayerPtr scale_and_shift();

struct Job {
  std::int64_t steps = 20;
  bool centre = false;
  bool norm = false;        // scale_and_shift after the first layer
  bool batch_norm = false;  // over the global batch, after the first layer
  double dropout = 0;
  std::shared_ptr<const engine::Loss> loss = {};  // default: mean squared error
  engine::Fallback fallback = engine::Fallback::kNone;
  engine::Log log = engine::Log("", engine::Log::Level::kError);  // the trainer's
  engine::optim::Optimizer optimizer = engine::optim::sgd({.rate = 0.02, .momentum = 0.9});
  engine::DType dtype = engine::DType::kFloat64;
  std::size_t batch = 11;
  int accumulate = 1;
  int prefetch = 0;  // threads that read ahead
  std::int64_t steps_per_execution = 1;
  std::string checkpoints;
  std::int64_t every = 0;
  double every_seconds = 0;
  engine::Storage* storage = nullptr;
  int retries = 0;
  std::int64_t profile_steps = 0;               // steps to profile, if above 0
  const std::atomic<int>* interrupt = nullptr;  // for all processes ...
  bool last_hears_alone = false;                // ... or only for the last
  const engine::Dataset* test = nullptr;        // evaluated after each epoch
  std::function<void(const engine::StepReport&)> on_step;
};
engine::GraphSpec small_graph(const Job& job);
inline Table small_data() {
  return {39, 20, 5};
}

struct Outcome {
  std::vector<std::vector<double>> weights;  // one entry per rank
  std::vector<double> losses;                // one entry per step
  engine::History history;
  std::string trace;      // if the job has a profile
  std::size_t owned = 0;  // slot elements of rank 0
  std::int64_t overlapped = 0, reductions_beside = 0, repeated = 0;
};

// Returns options for `count` replicas on the reference device, with buckets of one block.
strategies::SynchronousOptions replicas(int count);
Outcome train_mirrored(const Job& job, strategies::SynchronousOptions options);
// Trains in threads as processes; host[i] is the host of process i. Process i has counts[i]
// replicas (default: options.devices.size()), all on devices[i] (default: the first of
// options.devices).
Outcome train_collective(const Job& job, strategies::SynchronousOptions options,
                         std::vector<int> host, std::vector<int> counts = {},
                         std::vector<engine::Device*> devices = {});
// Trains with `strategy` as one process; both functions above call it.
engine::History train(engine::Strategy& strategy, const Job& job, Outcome* outcome);

double difference(const std::vector<double>& a, const std::vector<double>& b);  // largest
double relative(const std::vector<double>& a, const std::vector<double>& b);    // L2

// Returns a function for SynchronousOptions::hook whose delays and yields are drawn from `seed`.
std::function<void()> delays(int seed);

}  // namespace lockstep::test
