// SPDX-License-Identifier: MIT
// Calibration with ranks that are threads. All ranks hold the same numbers, files are used or
// measured anew, and a rank that fails ends the calibration for all. Times are not judged.
#include "collectives/job/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <thread>

#include "collectives/cost/cost_cache.h"
#include "collectives/cost/probes.h"
#include "collectives/topology/binding.h"
#include "engine/base/error.h"
#include "engine/base/version.h"
#include "engine/cpu/cpu_device.h"
#include "test/strategies/observed_device.h"
#include "test/support/events.h"

namespace lockstep::test {
namespace calibration_test {

namespace fs = std::filesystem;
using collectives::Calibration;
using collectives::CalibrationOptions;
using collectives::JobOptions;
using collectives::Topology;
using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

constexpr std::size_t kTouched = std::size_t(2) << 20;  // bytes; one test uses the default

std::unique_ptr<engine::Ops> sums(OnReduce on_reduce = [](const auto&) {}) {
  return observed(engine::cpu_device()->ops(engine::DType::kFloat32, {.threads = 1}),
                  std::move(on_reduce));
}

struct Ended {
  std::vector<Calibration> calibrations;
  std::vector<std::string> errors;
};

// Runs calibration on processes that are threads, with `replicas` ranks each. `on_reduce`: the
// observer of each process.
Ended run(
    const std::vector<int>& host, int replicas, const CalibrationOptions& options,
    const std::function<void(int process)>& on_reduce = [](int) {},
    const std::function<void(int process, CalibrationOptions&, JobOptions&)>& change =
        [](int, auto&, auto&) {},
    const std::function<void(int process)>& failed = [](int) {}) {
  auto views = collectives::in_memory_bootstrap(host, 60s);
  Ended ended{std::vector<Calibration>(host.size()), std::vector<std::string>(host.size())};
  std::vector<std::thread> threads;
  for (std::size_t p = 0; p < host.size(); ++p)
    threads.emplace_back([&, p] {
      try {
        const auto ops = sums([&, p](const auto&) { on_reduce(int(p)); });
        const Topology topology = collectives::discover(
            *views[p], std::vector<std::string>(std::size_t(replicas), "cpu:0"));
        CalibrationOptions mine = options;
        JobOptions of_job;
        change(int(p), mine, of_job);
        collectives::Job job(collectives::ranks_of(*views[p], topology), of_job);
        ended.calibrations[p] = collectives::calibrate(job, topology, *ops, mine);
      } catch (const std::exception& error) {
        ended.errors[p] = error.what();
        failed(int(p));
      }
    });
  for (std::thread& thread : threads) thread.join();
  return ended;
}

class Calibrations : public testing::Test {
 protected:
  Calibrations() { fs::remove_all(folder_); }
  ~Calibrations() override { fs::remove_all(folder_); }
  CalibrationOptions options() const {
    return {.cache = folder_, .most_touched = kTouched, .waited = [] { return 0.0; }};
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path());
    return found;
  }
  const fs::path folder_ = fs::temp_directory_path() / fmt::format("lockstep-calib-{}", getpid());
};

TEST_F(Calibrations, AllRanksHoldTheSameNumbers) {
  for (const std::vector<int>& host : {std::vector{0, 0}, {0, 1, 1}, {0, 1, 0, 1}}) {
    // Each sum is tried, however slow the machine is.
    const Ended ended = run(host, 1, {.trials = 10, .most_touched = kTouched});
    const Topology& first = ended.calibrations[0].topology;
    for (std::size_t p = 0; p < host.size(); ++p) {
      EXPECT_EQ(ended.errors[p], "");
      EXPECT_EQ(to_json(ended.calibrations[p].topology), to_json(first));
      EXPECT_EQ(ended.calibrations[p].topology, first);
      EXPECT_FALSE(ended.calibrations[p].cached);
    }
    EXPECT_EQ(first.costs_are, "measured");
    for (std::size_t h = 0; h < first.hosts.size(); ++h) {
      const auto& costs = first.hosts[h].costs;
      EXPECT_GT(costs.step, 0);
      EXPECT_GE(costs.cores, 1);
      EXPECT_GT(costs.passes.size(), 3u);
      for (const auto& pass : costs.passes) {
        EXPECT_GT(pass.core, 0);
        EXPECT_GT(pass.host, 0);
      }
    }
    if (first.hosts.size() > 1) {
      EXPECT_GT(first.wire.bandwidth, 0);
      EXPECT_GT(first.wire.latency + first.wire.message, 0);
      EXPECT_NE(first.wire, collectives::WireCosts());
    }
    EXPECT_FALSE(first.trials.empty());
    for (const auto& trial : first.trials)
      EXPECT_NE(trial.seconds, trial.simulated) << trial.algorithm << " was not run";
  }
  EXPECT_FALSE(fs::exists(folder_));  // no files were requested
}

TEST_F(Calibrations, EightRanksOfOneProcessEnd) {
  const Ended ended = run({0}, 8, {});
  EXPECT_EQ(ended.errors[0], "");
  EXPECT_EQ(ended.calibrations[0].topology.ranks.size(), 8u);
  EXPECT_EQ(ended.calibrations[0].topology.costs_are, "measured");
  EXPECT_GT(ended.calibrations[0].seconds, 0);
}

// Hosts of one machine take caches and time from each other, so together they touch what two would.
TEST_F(Calibrations, HostsOfOneMachineShareWhatIsTouched) {
  const auto largest = [](const std::vector<int>& host) {
    const Ended ended = run(host, 1, {.trials = 0});
    EXPECT_EQ(ended.errors[0], "");
    return ended.calibrations[0].topology.hosts[0].costs.passes.back().bytes;
  };
  const double two = largest({0, 1}), four = largest({0, 1, 2, 3});
  EXPECT_GT(four, 0);
  EXPECT_DOUBLE_EQ(four * 2, two);
}

TEST_F(Calibrations, TheNextJobTakesWhatWasMeasured) {
  const Ended measured = run({0, 0}, 1, options());
  ASSERT_EQ(files().size(), 1u);
  const Ended again = run({0, 0}, 1, options());
  for (const std::size_t p : {0, 1}) {
    EXPECT_FALSE(measured.calibrations[p].cached);
    EXPECT_TRUE(measured.calibrations[p].kept) << p;
    EXPECT_TRUE(again.calibrations[p].cached);
    EXPECT_FALSE(again.calibrations[p].kept) << p;
    EXPECT_EQ(again.calibrations[p].note, "");
    EXPECT_EQ(to_json(again.calibrations[p].topology), to_json(measured.calibrations[p].topology));
  }
  std::string text;
  std::getline(std::ifstream(files()[0]), text, '\0');
  EXPECT_THAT(text, HasSubstr(fmt::format("lockstep {}, costs ", engine::version())));
  EXPECT_THAT(text, testing::ContainsRegex("probes [0-9a-f]{16}, transport"));
  CalibrationOptions fresh = options();
  fresh.fresh = true;
  EXPECT_FALSE(run({0, 0}, 1, fresh).calibrations[0].cached);
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(Calibrations, AnotherShapeIsMeasuredAnew) {
  run({0, 0}, 1, options());
  EXPECT_FALSE(run({0, 1}, 1, options()).calibrations[0].cached);
  EXPECT_FALSE(run({0}, 2, options()).calibrations[0].cached);
  EXPECT_EQ(files().size(), 3u);
  EXPECT_TRUE(run({0, 0}, 1, options()).calibrations[1].cached);
}

// All processes agree on whether costs are kept, also with different interfaces.
TEST_F(Calibrations, ProcessesMayHaveInterfacesOfTheirOwn) {
  const auto interface = [](int process, auto&, JobOptions& mine) {
    mine.network.interface = process == 0 ? "a" : "b";
  };
  for (const bool kept : {false, true}) {
    const Ended ended = run(
        {0, 0}, 1, options(), [](int) {}, interface);
    for (std::size_t p = 0; p < 2; ++p) {
      EXPECT_EQ(ended.errors[p], "");
      EXPECT_EQ(ended.calibrations[p].cached, kept);
    }
  }
}

TEST_F(Calibrations, ADamagedFileIsSaidAndMeasuredAnew) {
  run({0, 0}, 1, options());
  const fs::path file = files().at(0);
  std::ofstream(file, std::ios::app) << "}";
  const Ended ended = run({0, 0}, 1, options());
  EXPECT_FALSE(ended.calibrations[0].cached);
  EXPECT_FALSE(ended.calibrations[1].cached);
  EXPECT_THAT(ended.calibrations[0].note,
              AllOf(HasSubstr(file.string()), HasSubstr("measured anew")));
  EXPECT_EQ(ended.calibrations[1].note, "");  // one line, not one per process
  EXPECT_TRUE(run({0, 0}, 1, options()).calibrations[0].cached);
}

TEST_F(Calibrations, AFolderThatRefusesIsSaidAndNothingElse) {
  CalibrationOptions nowhere = options();
  nowhere.cache = "/proc/none";
  const Ended ended = run({0, 0}, 1, nowhere);
  EXPECT_EQ(ended.calibrations[0].topology.costs_are, "measured");
  for (const Calibration& one : ended.calibrations) EXPECT_FALSE(one.kept);
  EXPECT_THAT(ended.calibrations[0].note, HasSubstr("cannot be written"));
}

// Costs that were measured beside other work are used by this job and not kept. If ranks outnumber
// processors, they wait for each other's processors anyway, and their costs are kept.
TEST_F(Calibrations, WhatOtherWorkDisturbedIsUsedAndNotKept) {
  CalibrationOptions disturbed = options();
  std::atomic<int> hours{0};
  disturbed.waited = [&] { return 3600.0 * ++hours; };
  const int processors = int(collectives::allowed_processors().size());
  const Ended alone = run({0}, processors, disturbed);
  EXPECT_EQ(alone.errors[0], "");
  EXPECT_EQ(alone.calibrations[0].topology.costs_are, "measured");
  EXPECT_THAT(alone.calibrations[0].note,
              AllOf(HasSubstr("busy with other work"), HasSubstr("not kept")));
  EXPECT_FALSE(fs::exists(folder_));
  EXPECT_EQ(run({0}, processors, options()).calibrations[0].note, "");
  EXPECT_EQ(files().size(), 1u);

  const Ended crowd = run({0}, processors + 1, disturbed);
  EXPECT_EQ(crowd.calibrations[0].note, "");
  EXPECT_EQ(files().size(), 2u);
}

// On one host, a start has time only for trials. Kept trials serve such starts, but no job that
// needs all costs.
TEST_F(Calibrations, TrialsAloneLeaveAllOtherCostsAsTheyWere) {
  CalibrationOptions alone = options();
  alone.trials_alone = true;
  alone.trials = 1;  // too long for all to be disturbed
  const Ended timed = run({0, 0}, 1, alone);
  const Topology& first = timed.calibrations[0].topology;
  EXPECT_EQ(timed.errors[0], "");
  EXPECT_EQ(timed.calibrations[1].topology, first);
  EXPECT_EQ(first.costs_are, "assumed");
  EXPECT_EQ(first.hosts[0].costs, collectives::HostCosts());
  EXPECT_TRUE(timed.calibrations[1].kept);
  ASSERT_EQ(files().size(), 1u);
  const Ended again = run({0, 0}, 1, alone);
  EXPECT_TRUE(again.calibrations[1].cached);
  EXPECT_EQ(again.calibrations[1].topology, first);
  const Ended all = run({0, 0}, 1, options());
  EXPECT_FALSE(all.calibrations[0].cached);
  EXPECT_EQ(all.calibrations[0].topology.costs_are, "measured");
  EXPECT_EQ(all.calibrations[0].note, "");
  const Ended start = run({0, 0}, 1, alone);
  EXPECT_TRUE(start.calibrations[0].cached);
  EXPECT_EQ(start.calibrations[0].topology, all.calibrations[0].topology);
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(Calibrations, TrialsBesideOtherWorkAreNotKept) {
  const int processors = int(collectives::allowed_processors().size());
  CalibrationOptions busy = options();
  busy.trials_alone = true;
  std::atomic<int> hours{0};
  busy.waited = [&] { return 3600.0 * ++hours; };
  const Calibration alone = run({0}, processors, busy).calibrations[0];
  EXPECT_TRUE(alone.disturbed);
  EXPECT_EQ(alone.note, "") << "a start that is only less sure of its choice warns of nothing";
  EXPECT_FALSE(fs::exists(folder_));
  EXPECT_FALSE(run({0}, processors + 1, busy).calibrations[0].disturbed);
}

// Each sum takes longer than the time for all sums, in each round of both attempts.
TEST_F(Calibrations, TrialsThatNeverEndInTimeAreLeftOut) {
  CalibrationOptions busy = options();
  busy.trials_alone = true;
  busy.most_touched = std::size_t(64) << 20;  // all sizes
  std::atomic<int> hours{0};
  busy.waited = [&] { return 3600.0 * ++hours; };
  const Ended ended = run({0}, int(collectives::allowed_processors().size()), busy,
                          [](int) { std::this_thread::sleep_for(15ms); });
  EXPECT_EQ(ended.errors[0], "");
  EXPECT_THAT(ended.calibrations[0].topology.trials, testing::IsEmpty());
}

// A slow machine runs a third of each probe's repetitions, and no more if that has taken long.
TEST_F(Calibrations, ASlowMachineMeasuresLess) {
  std::atomic<int> reductions{0};
  const Ended ended = run({0, 0}, 1, {.most_touched = kTouched}, [&](int process) {
    if (process != 0) return;
    ++reductions;
    std::this_thread::sleep_for(1ms);
  });
  EXPECT_EQ(ended.errors[0], "");
  // Counts the reductions of the first rank if each probe ran all its repetitions.
  int all = 0;
  const auto count = [&](const collectives::ProbeGroup& group) {
    for (std::size_t p = 0; p < group.probes.size(); ++p)
      for (const auto& step : group.step[p + 1].plan.lanes[0][0])
        all += step.action == collectives::Action::kReduce ? group.probes[p].repetitions : 0;
  };
  count(collectives::signal_probes({0, 0}));
  count(collectives::line_probe({0, 0}));
  for (const std::size_t bytes : collectives::pass_sizes(kTouched / 2, 2))
    count(collectives::pass_probe({0, 0}, bytes));
  for (const std::size_t bytes : collectives::store_probe_sizes(kTouched, 2))
    count(collectives::store_probe({0, 0}, bytes));
  EXPECT_GT(reductions, all / 4);
  EXPECT_LT(reductions, all * 2 / 3);
}

// A long calibration is reported once, by one process.
TEST_F(Calibrations, ThatItTakesLongIsSaid) {
  std::mutex mutex;
  std::vector<std::string> told;
  CalibrationOptions slow{.most_touched = kTouched};
  slow.tell = [&](const std::string& line) {
    const std::scoped_lock lock(mutex);
    told.push_back(line);
  };
  const auto sleepy = [](int) { std::this_thread::sleep_for(50us); };
  slow.notice_after = 1h;
  EXPECT_EQ(run({0, 0}, 1, slow, sleepy).errors[0], "");
  EXPECT_TRUE(told.empty());
  slow.notice_after = 1ms;
  EXPECT_EQ(run({0, 0}, 1, slow, sleepy).errors[0], "");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told[0], HasSubstr("still being measured after 0.001 s"));
}

// If a rank fails in the middle of the probes, the others are told why, by its host and by another.
TEST_F(Calibrations, ARankThatFailsEndsTheOthers) {
  for (const std::vector<int>& host : {std::vector{0, 0, 0}, {0, 1}, {0, 0, 1, 1}}) {
    std::atomic<int> reductions{0};
    const Ended ended = run(host, 1, {.most_touched = kTouched}, [&](int process) {
      if (process == 1 && ++reductions == 100)
        engine::fail(engine::Code::kDevice, "rank 1 broke its kernel");
    });
    for (const std::string& error : ended.errors)
      EXPECT_THAT(error, HasSubstr("rank 1")) << host.size() << " processes";
    EXPECT_THAT(ended.errors[1], HasSubstr("broke its kernel"));
  }
}

// The others also end if a rank fails while all-reduces of few bytes are tried. The measurements
// within hosts begin and end with a read of the time waited; after them only trials reduce.
TEST_F(Calibrations, ARankThatFailsInATrialEndsTheOthers) {
  for (const std::vector<int>& host : {std::vector{0, 0, 0}, {0, 0, 1, 1}}) {
    std::atomic<int> looks{0};
    std::atomic<bool> tried = false;
    const Ended ended = run(
        host, 1, {.trials = 10, .most_touched = kTouched},
        [&](int process) {
          if (process != 1 || looks <= 2) return;
          tried = true;
          engine::fail(engine::Code::kDevice, "rank 1 broke its kernel");
        },
        [&](int process, CalibrationOptions& mine, auto&) {
          mine.waited = [&looks, process] {
            if (process == 1) ++looks;
            return 0.0;
          };
        });
    EXPECT_TRUE(tried);
    for (const std::string& error : ended.errors)
      EXPECT_THAT(error, HasSubstr("rank 1")) << host.size() << " processes";
    EXPECT_THAT(ended.errors[1], HasSubstr("broke its kernel"));
  }
}

// The deadline names a rank that lives but does not come.
TEST_F(Calibrations, ARankThatStopsIsNamedAtTheDeadline) {
  std::atomic<int> reductions{0};
  std::atomic<bool> told = false;
  const Ended ended = run(
      {0, 0, 0}, 1, {.most_touched = kTouched},
      [&](int process) {
        if (process == 2 && ++reductions == 100) {
          EXPECT_TRUE(await([&] { return told.load(); }));
        }
      },
      [](int, auto&, JobOptions& mine) { mine.deadline = 1500ms; }, [&](int) { told = true; });
  for (const std::size_t p : {0, 1})
    EXPECT_THAT(ended.errors[p], AllOf(HasSubstr("calibration"), HasSubstr("rank 2 is missing: ")));
}

}  // namespace calibration_test
}  // namespace lockstep::test
