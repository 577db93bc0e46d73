// SPDX-License-Identifier: MIT
// Times work that a device queues, in batches of calls between two waits for the device. The
// entries are interleaved, so that a change of the device's speed affects all of them. One thread.
#pragma once
#include <functional>
#include <vector>

namespace lockstep::tools::bench {

struct Batches {
  static constexpr int kMostCalls = 1000;

  std::function<double(int calls)> seconds;  // per call, in a batch of `calls`
  int most_calls = kMostCalls;               // most calls of a batch
  // Set by time_batches: the calls of each batch, and the seconds of one call in each round.
  int calls = 1;
  std::vector<double> samples = {};
};

// Times one batch of each entry per round. A batch has as many calls as take about `batch_seconds`.
// Before that, a few untimed calls of each entry load kernels and touch memory.
void time_batches(const std::vector<Batches*>& all, int turns, double batch_seconds);

}  // namespace lockstep::tools::bench
