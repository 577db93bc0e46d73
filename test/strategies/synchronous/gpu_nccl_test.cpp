// SPDX-License-Identifier: MIT
// Processes with one GPU each let NCCL sum their gradients. They train like replicas on the
// processor, and end with an error if a rank is lost. GPUs and NCCL are fakes; a sum runs when all
// streams have reached it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <optional>
#include <thread>

#include "engine/cpu/cpu_device.h"
#include "test/collectives/nccl/stream_meeting.h"
#include "test/engine/cuda/fake_devices.h"
#include "test/strategies/inspection.h"
#include "test/strategies/small_job.h"
#include "test/support/events.h"

namespace lockstep::test {
namespace gpu_nccl_test {

using collectives::nccl::FakeNccl;
using engine::DType;
using testing::HasSubstr;

// Runs a job with one process per entry of `host`, each on its own GPU.
struct GpuJob {
  std::vector<int> host = {0, 0};
  std::uint64_t seed = 1;
  Job job = {};
  strategies::SynchronousOptions options = replicas(1);
  std::function<void(FakeNccl&)> prepare = [](FakeNccl&) {};
  std::string explained = {};
  int sums = 0;  // NCCL sums requested

  Outcome train() {
    engine::cuda::FakeDevices gpus({.gpus = int(host.size()), .seed = seed});
    FakeNccl nccl(in_streams());
    nccl.lag = 2;
    prepare(nccl);
    options.step.bucket_bytes = engine::kBlock * sizeof(float);
    options.vendor = library(nccl);
    std::vector<engine::Device*> devices;
    for (std::size_t i = 0; i < host.size(); ++i) devices.push_back(&gpus[i]);
    options.devices = {devices[0]};
    Outcome outcome = train_collective(job, options, host, {}, devices);
    sums = nccl.queued();
    EXPECT_EQ(nccl.misuses(), std::vector<std::string>());
    EXPECT_EQ(nccl.communicators(), 0);
    return outcome;
  }
};

Job small(DType dtype) {
  Job job;
  job.dtype = dtype;
  job.steps = 8;
  return job;
}

Outcome on_processor(const Job& job, int count) {
  const auto processor = engine::cpu_device();
  strategies::SynchronousOptions options = replicas(count);
  options.devices.assign(std::size_t(count), processor.get());
  options.step.bucket_bytes = engine::kBlock * sizeof(float);
  return train_mirrored(job, options);
}

TEST(GpuNccl, ItsSumsTrainAsReplicasOnTheProcessorDo) {
  using namespace engine::optim;
  for (const Optimizer& optimizer : {sgd({.rate = 0.02, .momentum = 0.9}), lars({.rate = 0.02}),
                                     sgd({.rate = 0.02, .momentum = 0.9, .clip_norm = 0.01})}) {
    for (const std::vector<int>& host : {std::vector<int>{0, 0}, {0, 1}, {0, 0, 1, 1, 1}}) {
      if (host.size() == 5 && optimizer.rule.needs() != engine::Needs::kNothing) continue;
      GpuJob gpus{.host = host, .job = small(DType::kFloat32)};
      gpus.job.optimizer = optimizer;
      gpus.job.batch_norm = host.size() == 2;
      const Outcome here = gpus.train();
      const Outcome there = on_processor(gpus.job, int(host.size()));
      EXPECT_LT(relative(here.weights[0], there.weights[0]), 1e-5);
      for (const auto& weights : here.weights) EXPECT_EQ(weights, here.weights[0]);
      EXPECT_GT(gpus.sums, 8 * int(host.size())) << "they were made by somebody else";
    }
  }
}

TEST(GpuNccl, TwoRunsGiveTheSameBitsInEveryOrderOfStreams) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    std::vector<std::vector<double>> weights;
    for (std::uint64_t seed : {1, 2, 3}) {
      GpuJob gpus{.host = {0, 0, 0}, .seed = seed, .job = small(dtype)};
      gpus.options.communication_thread = seed == 2;
      weights.push_back(gpus.train().weights[0]);
    }
    EXPECT_EQ(weights[0], weights[1]);
    EXPECT_EQ(weights[0], weights[2]);
  }
}

TEST(GpuNccl, ItIsTakenWhereNothingElseIsAskedForAndSaysWhy) {
  for (const auto& [host, name] : {std::pair(std::vector<int>{0, 0}, "nccl"),
                                   {{0, 1}, "nccl"},
                                   {{0, 0, 1}, "nccl_hierarchical"}}) {
    engine::cuda::FakeDevices gpus({.gpus = 3});
    FakeNccl nccl(in_streams());
    const auto bootstraps = collectives::in_memory_bootstrap(host, std::chrono::seconds(20));
    std::vector<std::string> texts(host.size()), checks(host.size());
    {
      std::vector<std::jthread> processes;
      for (const auto& bootstrap : bootstraps)
        processes.emplace_back([&, b = bootstrap.get()] {
          strategies::SynchronousOptions options = replicas(1);
          const auto me = std::size_t(b->process());
          options.devices = {&gpus[me]};
          options.step.dtype = DType::kFloat32;
          options.vendor = library(nccl);
          strategies::CollectiveAllReduce strategy(options, *b);
          train(strategy, small(DType::kFloat32), nullptr);
          texts[me] = strategy.explain();
          checks[me] = verify(strategy);
          b->finish();
        });
    }
    EXPECT_THAT(texts[0], HasSubstr(fmt::format("all-reduce: {}, update separate\n", name)));
    EXPECT_THAT(texts[0], HasSubstr("it is what adds between GPUs of several processes"));
    EXPECT_EQ(checks[0], "");
  }
}

// Returns the error of the job's first process that has one.
engine::Error failure(GpuJob gpus) {
  try {
    gpus.train();
  } catch (const engine::Error& error) {
    return error;
  }
  return {engine::Code::kIo, "none"};
}

TEST(GpuNccl, ALostRankEndsTheOthersWaits) {
  GpuJob gpus{.host = {0, 1, 2}, .job = small(DType::kFloat32)};
  FakeNccl* nccl = nullptr;
  gpus.prepare = [&](FakeNccl& fake) { nccl = &fake; };
  gpus.job.on_step = [&](const engine::StepReport& report) {
    if (report.step == 3) nccl->lose(1, "NET/Socket : peer has closed");
  };
  const engine::Error error = failure(gpus);
  EXPECT_EQ(error.code(), engine::Code::kPeerLost) << error.what();
  EXPECT_THAT(error.what(), HasSubstr("peer has closed"));
}

// Reports when it is aborted. It has no collectives.
class Ending final : public collectives::nccl::Communicator {
 public:
  explicit Ending(std::promise<std::string>& ended) : ended_(ended) {}
  int rank() const override { return 0; }
  int ranks() const override { return 2; }
  void all_reduce(std::byte*, std::size_t, DType, void*) override { check(); }
  void reduce_scatter(std::byte*, std::size_t, DType, void*) override {}
  void all_gather(std::byte*, std::size_t, DType, void*) override {}
  void broadcast(std::byte*, std::size_t, DType, int, void*) override {}
  void add_memory(std::byte*, std::size_t) override {}
  void remove_memory(const std::byte*) override {}
  engine::Buffer allocate(std::size_t bytes) override { return engine::Buffer(bytes); }
  void check() override {
    if (error_) throw engine::Error(*error_);
  }
  void wait(const std::function<bool()>&) override {}
  void abort(const engine::Error& why) noexcept override {
    if (!error_) ended_.set_value(why.what());
    error_ = why;
  }

 private:
  std::promise<std::string>& ended_;
  std::optional<engine::Error> error_;
};

TEST(GpuNccl, WhatAnotherRankSaysEndsWhatIsQueuedAndIsThrownByLaterSums) {
  const auto gpu = engine::cuda::fake_device();
  const auto ops = gpu->ops(DType::kFloat32, {});
  std::promise<std::string> ended;
  const auto alone = collectives::single_process();
  collectives::Job job(collectives::rank_of_each_process(*alone),
                       {.deadline = std::chrono::minutes(5)});
  strategies::VendorSums sums(job, std::make_unique<Ending>(ended), *ops);
  std::atomic<bool> lost = false;
  sums.watch([&] {
    if (lost) engine::fail(engine::Code::kPeerLost, "rank 1 is gone");
  });
  sums.sum(nullptr, 0, DType::kFloat32);
  auto words = ended.get_future();
  EXPECT_EQ(words.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  lost = true;
  ASSERT_EQ(words.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_EQ(words.get(), "rank 1 is gone");
  EXPECT_THROW(sums.sum(nullptr, 0, DType::kFloat32), engine::Error);
}

// Work queued with a failed rank never runs; the other ranks hear of the failure from that rank.
TEST(GpuNccl, ARankThatFailsEndsTheOthersWaitsLongBeforeTheDeadline) {
  for (const std::vector<int>& host : {std::vector<int>{0, 0, 0}, {0, 1, 2}}) {
    GpuJob gpus{.host = host, .job = small(DType::kFloat32)};
    gpus.options.deadline = std::chrono::minutes(5);
    gpus.job.on_step = [&](const engine::StepReport& report) {
      if (report.step == 3) engine::fail(engine::Code::kInvalid, "nobody likes this loss");
    };
    const auto begin = engine::Clock::now();
    const engine::Error error = failure(gpus);
    EXPECT_THAT(error.what(), HasSubstr("nobody likes this loss"));
    EXPECT_LT(engine::Clock::now() - begin, std::chrono::minutes(1));
  }
}

TEST(GpuNccl, ARankThatDoesNotComeIsWaitedForUntilTheDeadline) {
  GpuJob gpus{.host = {0, 1}, .job = small(DType::kFloat32)};
  gpus.options.deadline = std::chrono::milliseconds(500);
  FakeNccl* nccl = nullptr;
  gpus.prepare = [&](FakeNccl& made) { nccl = &made; };
  gpus.job.on_step = [&](const engine::StepReport& report) {
    if (report.step == 3) {
      EXPECT_TRUE(await([&] { return nccl->aborted() > 0; }));
    }
  };
  const engine::Error error = failure(gpus);
  EXPECT_EQ(error.code(), engine::Code::kTimeout) << error.what();
}

TEST(GpuNccl, WhatItCannotServeIsRefusedWhereAskedForAndElseLeftOut) {
  GpuJob without{.job = small(DType::kFloat32)};
  without.options.step.algorithm = "nccl";
  EXPECT_GT(without.train().losses.size(), 0u);
  EXPECT_GT(without.sums, 0);
  without.options.step.update = strategies::Update::kFused;
  EXPECT_THAT(failure(without).what(), HasSubstr("nccl adds, and has no place for it"));

  engine::cuda::FakeDevices gpus({.gpus = 1});
  FakeNccl nccl(in_streams());
  strategies::SynchronousOptions shared = replicas(1);
  shared.devices = {&gpus[0]};
  shared.vendor = library(nccl);
  const auto train_shared = [&](std::vector<int> counts) {
    return train_collective(small(DType::kFloat32), shared, {0, 0}, counts);
  };
  EXPECT_EQ(train_shared({1, 1}).losses.size(), 8u);
  EXPECT_EQ(train_shared({2, 1}).losses.size(), 8u);
  EXPECT_EQ(nccl.queued(), 0);
  const auto refusal = [&](std::vector<int> counts) -> std::string {
    try {
      train_shared(counts);
    } catch (const engine::Error& error) {
      return error.what();
    }
    return "none";
  };
  shared.step.algorithm = "nccl";
  EXPECT_THAT(refusal({1, 1}), HasSubstr("nccl takes one replica a GPU, and some processes of this "
                                         "job share one: use auto"));
  EXPECT_THAT(refusal({2, 1}), HasSubstr("takes one replica a process"));
  shared.vendor.version = [] { return ""; };
  EXPECT_THAT(refusal({1, 1}), HasSubstr("nccl needs NCCL, and process 0 has none: use auto"));
}

TEST(GpuNccl, ARunWithoutItGoesOnFromACheckpointOfOneWith) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "gpu_nccl";
  std::filesystem::remove_all(folder);
  GpuJob gpus{.job = small(DType::kFloat32)};
  gpus.job.optimizer.schedule.kind = engine::optim::Schedule::Kind::kConstant;
  const Outcome whole = gpus.train();
  gpus.job.checkpoints = folder.string();
  gpus.job.every = 4;
  gpus.job.steps = 4;
  gpus.train();
  gpus.job.steps = 8;
  engine::cuda::FakeDevices devices({.gpus = 2});
  strategies::SynchronousOptions options = gpus.options;
  options.devices = {&devices[0]};
  options.vendor.version = [] { return ""; };
  const Outcome rest = train_collective(gpus.job, options, {0, 0}, {}, {&devices[0], &devices[1]});
  EXPECT_EQ(rest.losses.size(), 4u) << "it did not go on";
  EXPECT_LT(relative(rest.weights[0], whole.weights[0]), 1e-5);
  std::filesystem::remove_all(folder);
}

}  // namespace gpu_nccl_test
}  // namespace lockstep::test
