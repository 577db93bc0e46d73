// SPDX-License-Identifier: MIT
// Runs steps of a strategy one by one and times their parts on the first replica of this process.
// Parts are layers forward and backward, the loss, the input, and the exposed time of communication
// and update. On a device with queued kernels each part ends with a wait for it, because the time
// of the call itself means nothing there. Such steps take longer than those of the training loop,
// and only their parts are meaningful.
//
// The replicas' threads fill the results; the owner reads them when `take_steps` has returned.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "bench/bucket_model.h"
#include "engine/data/dataset.h"
#include "engine/nn/graph.h"
#include "engine/train/strategy.h"

namespace lockstep::bench {

// Times of parts, in the order in which they first occurred, with a sample per step.
class Parts : public engine::Observer {
 public:
  void add(const std::string& part, double seconds);
  void layer(const std::string& name, Pass pass, engine::Clock::time_point begin,
             engine::Clock::time_point end, engine::Tensor) override;
  // Ends a step. `whole`: seconds of the step; `rest` is the time outside of the parts.
  void end_step(bool keep, double whole);
  const std::vector<std::string>& order() const { return order_; }
  double of(const std::string& part) const;  // medians
  double rest() const;

 private:
  std::vector<std::string> order_;
  std::map<std::string, double> now_;
  std::map<std::string, std::vector<double>> samples_;
  std::vector<double> rest_;
};

// Times when each gradient is final, in seconds of computing since the step began. The time of the
// strategy's calls does not count.
class ReadyTimes {
 public:
  void begin_step() { next_ = 0; }
  void add(engine::Range range, double seconds, bool keep);
  // Returns a unit per layer's gradients.
  std::vector<ReadyUnit> units(std::size_t width) const;
  // Returns the strategy's buckets.
  std::vector<ReadyUnit> buckets(const std::vector<engine::Range>& cut, std::size_t width) const;

 private:
  std::size_t next_ = 0;
  std::vector<std::size_t> ends_;
  std::vector<std::vector<double>> samples_;
};

struct StepTimes {
  Parts parts;
  ReadyTimes ready;
  // Seconds of each step after the warm-up: the whole step, the step without the strategy's calls,
  // and the processor time of this process.
  std::vector<double> whole, computing, processor;
  std::vector<double> losses;  // all steps, this replica's examples
};

// Runs steps [first, first + warm_up + steps) of an open strategy on batches of the data's first
// examples.
StepTimes take_steps(engine::Strategy& strategy, const engine::Dataset& data, std::size_t batch,
                     double rate, int first, int warm_up, int steps);

}  // namespace lockstep::bench
