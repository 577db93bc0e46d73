// SPDX-License-Identifier: MIT
// Library threads do not spin if others need the processors, and other load is reported once.
#include "strategies/session/processor_watch.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "test/support/events.h"

namespace lockstep::strategies {
namespace processor_watch_test {

using namespace std::chrono_literals;
using collectives::ProcessorWait;

constexpr int kWaits = 10;
constexpr auto kWait = 10ms;

// Returns the CPU seconds of this process while one library thread waits for another, which sleeps.
double seconds_of_waits() {
  const auto seconds = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
  };
  const double begin = seconds();
  for (int i = 0; i < kWaits; ++i) {
#pragma omp parallel num_threads(2)
    if (omp_get_thread_num() == 1) std::this_thread::sleep_for(kWait);
  }
  return seconds() - begin;
}

const double kSpinning = kWaits * std::chrono::duration<double>(kWait).count();

TEST(BriefWaits, AThreadThatWaitsTakesNoProcessor) {
  const engine::cpu::BriefWaits brief;
  EXPECT_LT(seconds_of_waits(), 0.2 * kSpinning);
}

TEST(ProcessorWatch, MoreThreadsThanProcessorsDoNotSpin) {
  std::atomic<int> asked = 0;
  const ProcessorWatch watch({.library_threads = 2, .threads = 4, .processors = 2, .wait = [&] {
                                ++asked;
                                return ProcessorWait();
                              }});
  EXPECT_LT(seconds_of_waits(), 0.2 * kSpinning);
  EXPECT_EQ(asked, 0);
}

// Returns the warnings of a watch that is given these waits, once it has asked for all of them.
std::string warnings_of(std::vector<double> parts) {
  std::string said;
  std::atomic<std::size_t> asked = 0;
  {
    const engine::Log log("", engine::Log::Level::kWarning,
                          [&](engine::Log::Level, std::string_view line) {
                            said += std::string(line) + "\n";
                            asked = 1'000'000;
                          });
    const ProcessorWatch watch(
        {.library_threads = 2,
         .threads = 2,
         .processors = 2,
         .log = log,
         .interval = 1ms,
         .wait = [&, parts] {
           const std::size_t at = asked++;
           return at < parts.size() ? ProcessorWait{parts[at], 1} : ProcessorWait{0, 1};
         }});
    const auto until = engine::Clock::now() + 20s;
    while (asked <= parts.size() + 2 && engine::Clock::now() < until)
      std::this_thread::sleep_for(1ms);
    EXPECT_GT(asked, parts.size());
    if (!said.empty()) {
      EXPECT_LT(seconds_of_waits(), 0.2 * kSpinning);
    }
  }
  return said;
}

TEST(ProcessorWatch, OtherWorkIsSaidOnce) {
  EXPECT_EQ(warnings_of({0, 0.1, 0.4, 0.8, 0.9, 0.9}),
            "the machine is busy with other work: a thread waited 80 % of the time for a "
            "processor, so steps take longer; end what else runs (top shows it)\n");
}

TEST(ProcessorWatch, ABurstIsNotOtherWork) {
  EXPECT_EQ(warnings_of({0.9, 0.9, 0, 0.9, 0.1, 0.9, 0}), "");
}

TEST(ProcessorWatch, TheKernelCountsForAllThreads) {
  collectives::ThreadWaits waits;
  EXPECT_GE(waits.lap().seconds, 0);
  // With more threads than processors some threads wait, and each lap lists the threads anew.
  std::vector<std::jthread> busy;
  for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency(); ++i)
    busy.emplace_back([](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
      }
    });
  for (int more = 0; more < 2; ++more) {
    ProcessorWait lap;
    EXPECT_TRUE(test::await([&] { return (lap = waits.lap()).waited > 0; }));
    EXPECT_LT(lap.seconds, 1000);
  }
}

}  // namespace processor_watch_test
}  // namespace lockstep::strategies
