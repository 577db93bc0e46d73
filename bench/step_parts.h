// SPDX-License-Identifier: MIT
// Steps of a strategy, one by one, and where the time of each goes on the first replica of this
// process: layers forward and backward, the loss, the input, what communication and update leave
// exposed. Where kernels are queued on a device each part ends with a wait for it, since a call's
// own time says nothing there: so such steps take longer than those of the training loop, and only
// their parts are worth something.
//
// The replicas' threads fill what the owner reads when `take_steps` has returned.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "bench/bucket_model.h"
#include "engine/data/dataset.h"
#include "engine/nn/graph.h"
#include "engine/train/strategy.h"

namespace lockstep::bench {

// Parts in the order in which they were first seen, a sample a step each.
class Parts : public engine::Observer {
 public:
  void add(const std::string& part, double seconds);
  void layer(const std::string& name, Pass pass, engine::Clock::time_point begin,
             engine::Clock::time_point end, engine::Tensor) override;
  // `whole`: seconds of the step; what no part has of them is `the rest`.
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

// When each gradient is final, in seconds of computing since the step began: what the strategy's
// calls take is not counted.
class ReadyTimes {
 public:
  void begin_step() { next_ = 0; }
  void add(engine::Range range, double seconds, bool keep);
  // A layer's gradients each.
  std::vector<ReadyUnit> units(std::size_t width) const;
  // Those of the strategy.
  std::vector<ReadyUnit> buckets(const std::vector<engine::Range>& cut, std::size_t width) const;

 private:
  std::size_t next_ = 0;
  std::vector<std::size_t> ends_;
  std::vector<std::vector<double>> samples_;
};

struct StepTimes {
  Parts parts;
  ReadyTimes ready;
  // Of the steps behind the warm-up, seconds: whole, without the strategy's calls, and what all
  // threads of this process had of processors.
  std::vector<double> whole, computing, processor;
  std::vector<double> losses;  // of all steps, of this replica's examples
};

// Steps [first, first + warm_up + steps) of an open strategy on batches of the data's first
// examples.
StepTimes take_steps(engine::Strategy& strategy, const engine::Dataset& data, std::size_t batch,
                     double rate, int first, int warm_up, int steps);

}  // namespace lockstep::bench
