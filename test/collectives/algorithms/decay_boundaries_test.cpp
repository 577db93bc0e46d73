// SPDX-License-Identifier: MIT
// Updates of parameters of which only some decay. On a device with its own memory each kernel call
// is a launch, so one call covers many parameters. The weights equal those of one call per
// parameter.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/algorithms/algorithms.h"
#include "test/collectives/job.h"
#include "test/strategies/notebook.h"

namespace lockstep::test {
namespace decay_boundaries_test {

using engine::ReduceArguments;

constexpr std::size_t kSegments = 150, kOfSegment = 24, kCount = kSegments * kOfSegment;

struct Inner {
  std::unique_ptr<engine::Ops> ops = engine::reference_ops(DType::kFloat32);
  Notebook notebook;
};

// Counts calls of reduce. On a device it splits the work at boundaries, as a kernel does.
class CountingOps final : private Inner, public RecordingOps {
 public:
  CountingOps(bool on_device, std::size_t& calls)
      : RecordingOps(*ops, notebook), on_device_(on_device), calls_(calls) {}
  bool in_host_memory() const override { return !on_device_; }
  void reduce(const ReduceArguments& all) const override {
    ++calls_;
    EXPECT_TRUE(on_device_ || all.update.boundaries.empty());
    EXPECT_LE(all.update.boundaries.size(), engine::kMostBoundaries);
    std::size_t begin = 0;
    for (std::size_t boundary = 0; boundary <= all.update.boundaries.size(); ++boundary) {
      const std::size_t end =
          boundary < all.update.boundaries.size() ? all.update.boundaries[boundary] : all.count;
      EXPECT_LT(begin, end);
      EXPECT_LE(end, all.count);
      const std::size_t bytes = begin * sizeof(float);
      std::vector<const std::byte*> from(all.from.begin(), all.from.end());
      std::vector<std::byte*> to(all.to.begin(), all.to.end());
      for (const std::byte*& source : from) source += bytes;
      for (std::byte*& target : to) target += bytes;
      ReduceArguments part = all;
      part.update.boundaries = {};
      part.from = from, part.to = to, part.count = end - begin;
      part.update.decays = all.update.decays != (boundary % 2 == 1);
      part.update.weight += bytes;
      if (all.update.rule->slots() > 0) part.update.slots[0] += bytes;
      Inner::ops->reduce(part);
      begin = end;
    }
  }

 private:
  bool on_device_;
  std::size_t& calls_;
};

// Returns the weights after two updates, and the number of reduce calls of one update.
std::pair<std::vector<float>, std::size_t> update(bool on_device) {
  Request request;
  request.subject = {0, kCount};
  request.host = {0};
  request.update = true;
  StepPlan step;
  step.push_back({collectives::local_update(request), {}});
  std::size_t calls = 0;
  JobOptions options;
  options.executor.blocks_at_once = 1 << 20;
  options.ops = [&] { return std::make_unique<CountingOps>(on_device, calls); };
  options.rule.momentum = 0.9;
  options.rule.weight_decay = 0.25;
  options.updates = {0};
  for (std::size_t s = 0; s < kSegments; ++s)
    options.segments.push_back({(s + 1) * kOfSegment, s % 2 == 1, false});
  Job job(std::move(step), kCount, std::move(options));
  for (std::size_t i = 0; i < kCount; ++i) {
    job.values<float>(0)[i] = float(i % 13) - 6;
    job.values<float>(0, Space::kWeight)[i] = float(i % 7) - 3;
  }
  engine::StepState state;
  state.rate = 0.5;
  job.execute({0}, &state);
  const std::size_t of_one = std::exchange(calls, 0);
  job.execute({0}, &state);
  EXPECT_EQ(calls, of_one);
  const float* const weights = job.values<float>(0, Space::kWeight);
  return {{weights, weights + kCount}, of_one};
}

TEST(DecayBoundaries, OneCallOnADeviceIsAboutManyParameters) {
  const auto [there, calls_there] = update(false);
  const auto [here, calls_here] = update(true);
  EXPECT_EQ(here, there);
  EXPECT_EQ(calls_there, kSegments);
  EXPECT_EQ(calls_here, (kSegments + engine::kMostBoundaries) / (engine::kMostBoundaries + 1));
}

}  // namespace decay_boundaries_test
}  // namespace lockstep::test
