// SPDX-License-Identifier: MIT
// Times work that a device does later, in batches of calls between two waits for the device. All
// that is compared takes turns, so that a device that becomes slower or faster does so for all. One
// thread.
#pragma once
#include <functional>
#include <vector>

namespace lockstep::tools::bench {

struct Batches {
  static constexpr int kMostCalls = 1000;

  std::function<double(int calls)> seconds;  // of one of so many calls
  int most_calls = kMostCalls;               // of a batch
  // Set by time_batches: calls of each batch, and seconds of one call, by turn.
  int calls = 1;
  std::vector<double> samples = {};
};

// Times a batch of each in every turn. A batch has so many calls that it takes about
// `batch_seconds`. A few calls of each are made untimed first: they load kernels and touch memory.
void time_batches(const std::vector<Batches*>& all, int turns, double batch_seconds);

}  // namespace lockstep::tools::bench
