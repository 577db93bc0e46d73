// SPDX-License-Identifier: MIT
// Processes of a host that use memory of each other's GPUs are ranks of one host. They end with the
// bits of as many replicas of one process. The processes are threads, which the fake driver
// distinguishes. Each has its own addresses for the memory that it opens, and a kernel fails if it
// touches memory that its process has not opened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <latch>
#include <mutex>
#include <numeric>
#include <thread>

#include "engine/cpu/cpu_device.h"
#include "test/engine/cuda/fake_devices.h"
#include "test/engine/cuda/fake_driver.h"
#include "test/strategies/inspection.h"
#include "test/strategies/small_job.h"
#include "test/support/events.h"

namespace lockstep::test {
namespace gpu_ipc_test {

using engine::Code;
using engine::DType;
using testing::HasSubstr;

// Runs processes that share GPUs, with one entry of `replicas` per process.
struct Processes {
  std::vector<int> replicas = {1, 1};
  std::vector<std::size_t> gpu = {};  // one entry per process; empty: the first GPU
  std::vector<int> host = {};         // one entry per process; empty: one host
  engine::cuda::FakeGpuOptions fake = {};
  strategies::SynchronousOptions options = test::replicas(1);
  std::function<void(strategies::SynchronousOptions&, int process)> prepare = {};
  // The first process calls the hook after each step. A thread in the last argument is joined
  // before the strategy is destroyed.
  std::function<void(strategies::Synchronous&, engine::cuda::FakeDevices&, std::int64_t step,
                     std::jthread&)>
      on_step = {};
  std::function<void(int process)> failed = [](int) {};
  std::string explained = {};            // of the first process
  int hosts = 0;                         // in the plan
  std::vector<std::string> errors = {};  // one entry per process

  // Throws the first error of any process.
  Outcome train(const Job& job) {
    const std::size_t count = replicas.size();
    if (gpu.empty()) gpu.assign(count, 0);
    if (host.empty()) host.assign(count, 0);
    fake.gpus = int(*std::max_element(gpu.begin(), gpu.end())) + 1;
    engine::cuda::FakeDevices all(fake);
    std::vector<std::vector<std::unique_ptr<engine::Device>>> devices;
    for (std::size_t p = 0; p < count; ++p) devices.push_back(all.of_process(int(p) + 1));
    Outcome outcome;
    outcome.weights.resize(std::size_t(std::accumulate(replicas.begin(), replicas.end(), 0)));
    errors.assign(count, "");
    options.step.dtype = job.dtype;
    options.step.bucket_bytes = engine::kBlock * sizeof(float);
    const auto bootstraps = collectives::in_memory_bootstrap(host, std::chrono::seconds(20));
    std::mutex mutex;
    std::exception_ptr first;
    {
      std::vector<std::jthread> threads;
      for (const auto& bootstrap : bootstraps)
        threads.emplace_back([&, b = bootstrap.get()] {
          const auto me = std::size_t(b->process());
          try {
            strategies::SynchronousOptions mine = options;
            mine.devices.assign(std::size_t(replicas[me]), devices[me][gpu[me]].get());
            if (prepare) prepare(mine, int(me));
            run(mine, *b, job, outcome, all);
            b->finish();
          } catch (const std::exception& error) {
            const std::scoped_lock lock(mutex);
            errors[me] = error.what();
            if (!first) first = std::current_exception();
            failed(int(me));
          }
        });
    }
    if (first) {
      all.end_processes();  // a failed process has closed nothing
      std::rethrow_exception(first);
    }
    devices.clear();
    EXPECT_EQ(all.left(), "") << "when all processes have ended";
    return outcome;
  }

 private:
  void run(const strategies::SynchronousOptions& mine, collectives::Bootstrap& bootstrap, Job job,
           Outcome& outcome, engine::cuda::FakeDevices& all) {
    strategies::CollectiveAllReduce strategy(mine, bootstrap);
    std::jthread beside;
    const engine::Membership me = strategy.membership();
    if (me.chief && on_step)
      job.on_step = [&](const engine::StepReport& report) {
        on_step(strategy, all, report.step, beside);
      };
    Outcome unused;
    test::train(strategy, job, me.chief ? &outcome : &unused);
    for (int i = 0; i < me.local; ++i)
      outcome.weights[std::size_t(me.rank + i)] = weights(strategy, i);
    if (!me.chief) return;
    outcome.owned = owned_elements(strategy, 0);
    explained = strategy.explain();
    hosts = int(strategy.topology().hosts.size());
  }
};

Job small(DType dtype) {
  Job job;
  job.dtype = dtype;
  job.steps = 6;
  return job;
}

// Trains the same ranks as replicas of one process on one GPU.
Outcome in_one_process(const Job& job, int count, const strategies::SynchronousOptions& like) {
  const auto gpu = engine::cuda::fake_device({.seed = 7});
  strategies::SynchronousOptions options = like;
  options.step.gpu_exchange = strategies::GpuExchange::kAutomatic;
  options.step.bucket_bytes = engine::kBlock * sizeof(float);
  options.devices.assign(std::size_t(count), gpu.get());
  return train_mirrored(job, options);
}

void expect_same(const Outcome& here, const Outcome& there) {
  for (const std::vector<double>& weights : here.weights) EXPECT_EQ(weights, there.weights[0]);
  EXPECT_EQ(here.losses, there.losses);
}

TEST(GpuIpc, ProcessesEndWithTheBitsOfReplicasOfOneProcess) {
  using namespace engine::optim;
  const Optimizer optimizers[] = {adam({.rate = 0.002}), lars({.rate = 0.02}),
                                  sgd({.rate = 0.02, .momentum = 0.9, .clip_norm = 0.01})};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const Optimizer& optimizer : optimizers) {
      if (dtype == DType::kBFloat16 && &optimizer != &optimizers[0]) continue;
      Job job = small(dtype);
      job.optimizer = optimizer;
      job.batch_norm = &optimizer == &optimizers[0];
      Processes two{.gpu = {0, 1}};
      expect_same(two.train(job), in_one_process(job, 2, two.options));
      EXPECT_EQ(two.hosts, 1);
      EXPECT_THAT(two.explained,
                  HasSubstr("GPUs of several processes: those of a host are ranks of one host"));
      const bool streams = optimizer.rule.needs() == engine::Needs::kNothing;
      EXPECT_THAT(two.explained,
                  HasSubstr(streams ? "all-reduce: direct, update fused" : "update"));
    }
  }
}

TEST(GpuIpc, OneGpuOfSeveralProcessesOrSeveralReplicasOfEachMakeNoDifference) {
  const Job job = small(DType::kFloat32);
  for (Processes processes :
       {Processes{}, Processes{.replicas = {2, 1}, .gpu = {0, 1}}, Processes{.replicas = {1, 1, 1}},
        Processes{.replicas = {1, 2, 1}, .gpu = {1, 0, 1}}}) {
    const int count = std::accumulate(processes.replicas.begin(), processes.replicas.end(), 0);
    expect_same(processes.train(job), in_one_process(job, count, processes.options));
    EXPECT_EQ(processes.hosts, 1);
  }
}

// The law holds for every algorithm that the planner may choose, and in every order of streams.
TEST(GpuIpc, EveryAlgorithmFusedAndSeparateGivesThoseBitsInEveryOrderOfStreams) {
  Job job = small(DType::kFloat32);
  job.steps = 3;
  const std::pair<const char*, const char*> kinds[] = {
      {"direct", "fused"}, {"direct", "separate"}, {"one_shot", "separate"}, {"ring", "fused"}};
  for (const auto& [algorithm, update] : kinds) {
    for (const std::uint64_t seed : {1, 2}) {
      SCOPED_TRACE(fmt::format("{} {} {}", algorithm, update, seed));
      Processes three{.replicas = {1, 1, 1}, .gpu = {0, 1, 1}};
      three.fake.seed = seed;
      three.options.step.algorithm = algorithm;
      three.options.step.update = strategies::update_of(update);
      three.options.communication_thread = seed == 2;
      expect_same(three.train(job), in_one_process(job, 3, three.options));
      EXPECT_EQ(three.hosts, 1);
    }
  }
}

TEST(GpuIpc, AFusedUpdateKeepsTheOptimizersStateOnceForAllProcesses) {
  const Job job = small(DType::kFloat32);
  Processes two, alone{.replicas = {1}};
  two.options.step.update = strategies::Update::kFused;
  const std::size_t part = two.train(job).owned, whole = alone.train(job).owned;
  EXPECT_LT(part, whole);
  EXPECT_GT(part, 0u);
}

// Ranks of two hosts with two processes each use hierarchical plans, as on processors.
TEST(GpuIpc, ProcessesOfSeveralHostsShareThoseOfTheirOwn) {
  const Job job = small(DType::kFloat32);
  Processes four{.replicas = {1, 1, 1, 1}, .gpu = {0, 1, 2, 3}, .host = {0, 0, 1, 1}};
  const Outcome here = four.train(job);
  EXPECT_EQ(four.hosts, 2);
  const auto processor = engine::cpu_device();
  strategies::SynchronousOptions options = replicas(4);
  options.devices.assign(4, processor.get());
  EXPECT_LT(relative(here.weights[0], train_mirrored(job, options).weights[0]), 1e-5);
  for (const std::vector<double>& weights : here.weights) EXPECT_EQ(weights, here.weights[0]);
}

TEST(GpuIpc, WhereItCannotBeMessagesGoThroughTheHostAndOneSentenceSaysWhy) {
  Job job = small(DType::kFloat32);
  job.steps = 3;
  Processes without{.fake = {.sharing = false}};
  without.train(job);
  EXPECT_EQ(without.hosts, 2);
  EXPECT_THAT(without.explained,
              HasSubstr("GPUs of several processes: through memory of the host, because process 0 "
                        "cannot share its GPU: cuda:0: cuIpcGetMemHandle failed: operation not "
                        "supported"));
  Processes apart{.gpu = {0, 1}, .fake = {.apart = {{1, 0}}}};
  apart.train(job);
  EXPECT_EQ(apart.hosts, 2);
  EXPECT_THAT(apart.explained, HasSubstr("process 1 cannot use the GPU of process 0"));
}

TEST(GpuIpc, ItIsAskedForOrRefusedByOneWord) {
  Job job = small(DType::kFloat32);
  job.steps = 3;
  const auto asking = [](const char* what, Processes processes = {}) {
    processes.options.step.gpu_exchange = strategies::gpu_exchange_of(what);
    return processes;
  };
  Processes host = asking("host"), ipc = asking("ipc");
  host.train(job);
  EXPECT_EQ(host.hosts, 2);
  EXPECT_THAT(host.explained, HasSubstr("through memory of the host, because that was asked for"));
  ipc.train(job);
  EXPECT_EQ(ipc.hosts, 1);
  EXPECT_THAT(ipc.explained, HasSubstr("because that was asked for"));

  const auto refusal = [&](Processes processes) -> std::string {
    try {
      processes.train(job);
    } catch (const engine::Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalid) << error.what();
      return error.what();
    }
    return "none";
  };
  EXPECT_THAT(refusal(asking("ipc", {.fake = {.sharing = false}})),
              HasSubstr("gpu exchange ipc: process 0 cannot share its GPU"));
  Processes four{.replicas = {1, 1, 1, 1}, .gpu = {0, 1, 2, 3}, .host = {0, 0, 1, 1}};
  four.fake.apart = {{3, 2}};
  four.train(job);
  EXPECT_EQ(four.hosts, 3);
  EXPECT_THAT(four.explained, HasSubstr("; on other hosts through memory of the host, because "
                                        "process 3 cannot use the GPU of process 2"));
  EXPECT_THAT(refusal(asking("ipc", four)), HasSubstr("gpu exchange ipc: process 3 cannot"));
  EXPECT_THAT(refusal(asking("ipc", {.host = {0, 1}})),
              HasSubstr("gpu exchange ipc: no host of this job has several processes: use auto"));
  EXPECT_THAT(refusal(asking("ipc", {.replicas = {2}})),
              HasSubstr("is for GPUs of several processes, and this job has none: leave it out"));
  EXPECT_THAT([&] { asking("shared"); },
              testing::ThrowsMessage<engine::Error>(
                  testing::StrEq("unknown gpu exchange 'shared'; known: auto, ipc, host")));
  Processes different;
  different.prepare = [](auto& options, int process) {
    if (process == 1) options.step.gpu_exchange = strategies::GpuExchange::kHost;
  };
  EXPECT_THAT(refusal(different), HasSubstr("'gpu exchange: host' and not 'gpu exchange: auto'"));
}

TEST(GpuIpc, NcclStaysTheDefaultWhereItServes) {
  Job job = small(DType::kFloat32);
  job.steps = 3;
  Processes two{.gpu = {0, 1}};
  two.options.vendor.version = [] { return "2.28.9"; };
  two.options.vendor.open = [](auto&, auto&) -> std::unique_ptr<collectives::DeviceCommunicator> {
    engine::fail(Code::kUnavailable, "NCCL is asked");
  };
  EXPECT_THROW(two.train(job), engine::Error);
  EXPECT_THAT(two.errors[0], HasSubstr("NCCL is asked"));
  two.options.step.algorithm = "direct";
  two.train(job);
  EXPECT_EQ(two.hosts, 1) << "another algorithm was asked for";
  two.options.step.algorithm = "nccl";
  two.options.step.gpu_exchange = strategies::GpuExchange::kIpc;
  EXPECT_THROW(two.train(job), engine::Error);
  EXPECT_THAT(two.errors[0], HasSubstr("algorithm nccl adds where processes have their GPUs"));
}

TEST(GpuIpc, ARunThatGoesOnFromACheckpointEndsWithTheSameBits) {
  Job part = small(DType::kBFloat16);
  part.optimizer.schedule.kind = engine::optim::Schedule::Kind::kConstant;
  const Outcome whole = Processes{}.train(part);
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "gpu_ipc";
  std::filesystem::remove_all(folder);
  part.checkpoints = folder.string();
  part.every = 3;
  part.steps = 3;
  Processes{}.train(part);
  part.steps = 6;
  Processes later;
  const Outcome rest = later.train(part);
  EXPECT_EQ(rest.losses.size(), 3u) << "it did not go on";
  EXPECT_THAT(later.explained, HasSubstr("the plan is the checkpoint's"));
  EXPECT_EQ(rest.weights, whole.weights);
  std::filesystem::remove_all(folder);
}

TEST(GpuIpc, AProcessThatDoesNotComeIsNamedAtTheDeadline) {
  Job job = small(DType::kFloat32);
  std::atomic<int> blocks{0};
  Processes two;
  std::latch over(1);  // holds the other process
  // Waits for the GPU have the same deadline, and kernels take a second under a sanitizer.
  two.options.deadline = std::chrono::seconds(3);
  two.failed = [&](int process) {
    if (process == 0) over.count_down();
  };
  two.prepare = [&](auto& options, int process) {
    if (process == 1)
      options.hook = [&] {
        if (++blocks == 20) {
          EXPECT_TRUE(await([&] { return over.try_wait(); }));
        }
      };
  };
  const auto begin = engine::Clock::now();
  EXPECT_THROW(two.train(job), engine::Error);
  EXPECT_LT(engine::Clock::now() - begin, std::chrono::seconds(15));
  EXPECT_THAT(two.errors[0], HasSubstr("rank 1 is missing"));
}

// Every process must pin what its kernels reach: the exchange and norms of all ranks. The fake
// driver cannot check these accesses.
TEST(GpuIpc, EachProcessPinsWhatTheHostSharesOfEveryRank) {
  Processes three{.replicas = {1, 2}};
  std::string held;
  three.on_step = [&](auto&, auto& all, std::int64_t, auto&) { held = all.left(); };
  three.train(small(DType::kFloat32));
  EXPECT_THAT(held, HasSubstr(", 6 pinned ranges"));
}

// Queued work waits for its events and never ends by itself. Freeing memory does not wait for it.
TEST(GpuIpc, AProcessThatDiesIsNamedByWhoWaitsForAGpu) {
  Processes two;
  two.options.deadline = std::chrono::minutes(5);
  two.on_step = [&](auto& strategy, auto& all, std::int64_t step, auto&) {
    if (step != 2) return;
    all.stick();
    strategy.abort(engine::Error(Code::kPeerLost, "rank 1 (pid 7) died"));
  };
  const auto begin = engine::Clock::now();
  EXPECT_THROW(two.train(small(DType::kFloat32)), engine::Error);
  EXPECT_LT(engine::Clock::now() - begin, std::chrono::minutes(1));
  for (const std::string& error : two.errors) EXPECT_THAT(error, HasSubstr("rank 1 (pid 7) died"));
}

TEST(GpuIpc, AGpuThatIsStuckIsWaitedForUntilTheDeadline) {
  Processes two;
  two.options.deadline = std::chrono::milliseconds(500);
  two.on_step = [&](auto&, auto& all, std::int64_t step, auto&) {
    if (step == 2) all.stick();
  };
  const auto begin = engine::Clock::now();
  EXPECT_THROW(two.train(small(DType::kFloat32)), engine::Error);
  EXPECT_LT(engine::Clock::now() - begin, std::chrono::seconds(30));
  EXPECT_THAT(two.errors[0], HasSubstr("waited 500 ms"));
}

// The memory of a dead process may vanish before the others hear of its death.
TEST(GpuIpc, WorkThatFailsBecauseAProcessDiedNamesTheProcess) {
  Job job = small(DType::kFloat32);
  job.steps = 40;
  Processes two;
  two.fake.failed_launch = 600;
  two.on_step = [&](strategies::Synchronous& strategy, auto&, std::int64_t step, auto& beside) {
    if (step != 0) return;
    beside = std::jthread([&strategy](const std::stop_token& over) {
      int count = 0;
      const engine::cuda::Driver driver = engine::cuda::fake_driver();
      while (!over.stop_requested() && driver.device_get_count(&count) == CUDA_SUCCESS)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      strategy.abort(engine::Error(Code::kPeerLost, "rank 1 (pid 7) died"));
    });
  };
  EXPECT_THROW(two.train(job), engine::Error);
  for (const std::string& error : two.errors) EXPECT_THAT(error, HasSubstr("rank 1 (pid 7) died"));
}

// The failed process's queued work completes, so no process keeps waiting for it.
TEST(GpuIpc, AProcessThatFailsEndsTheOthersWithItsWords) {
  Job job = small(DType::kFloat32);
  job.on_step = [&](const engine::StepReport& report) {
    if (report.step == 3) engine::fail(Code::kInvalid, "nobody likes this loss");
  };
  Processes three{.replicas = {1, 1, 1}, .gpu = {0, 1, 1}};
  three.options.deadline = std::chrono::minutes(5);
  const auto begin = engine::Clock::now();
  EXPECT_THROW(three.train(job), engine::Error);
  EXPECT_LT(engine::Clock::now() - begin, std::chrono::minutes(1));
  for (const std::string& error : three.errors)
    EXPECT_THAT(error, HasSubstr("nobody likes this loss"));
}

}  // namespace gpu_ipc_test
}  // namespace lockstep::test
