// SPDX-License-Identifier: MIT
// Processes compare values and fail together: all of them throw the same error. Processes are
// threads.
#include "collectives/job/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "engine/base/error.h"

namespace lockstep::test {
namespace agreement_test {

using namespace std::chrono_literals;
using engine::Code;
using engine::Error;
using testing::Each;

constexpr int kProcesses = 3;

// Returns what `body` threw on each process; "nothing" if it did not throw.
std::vector<std::string> thrown(const std::function<void(collectives::Job&, int process)>& body) {
  const auto views = collectives::in_memory_bootstrap(std::vector<int>(kProcesses, 0), 20s);
  std::vector<std::string> texts(kProcesses, "nothing");
  std::vector<std::jthread> threads;
  for (int process = 0; process < kProcesses; ++process)
    threads.emplace_back([&, process] {
      collectives::Job job(collectives::rank_of_each_process(*views[std::size_t(process)]), {});
      try {
        body(job, process);
      } catch (const Error& error) {
        texts[std::size_t(process)] = fmt::format("{}: {}", name(error.code()), error.what());
      }
    });
  threads.clear();  // joins
  return texts;
}

TEST(Agreement, OfTheSameTextsIsSilent) {
  EXPECT_THAT(thrown([](auto& job, int) { collectives::require_same(job, "a\nb\n", "flags"); }),
              Each("nothing"));
}

TEST(Agreement, LinesThatDifferAreShownByAllAlike) {
  const auto compare = [](bool heading) {
    return thrown([heading](auto& job, int process) {
      const char* const mine = process == 2 ? "model: b\nlayers: 2\n" : "model: a\nlayers: 1\n";
      collectives::require_same(job, mine, "model", heading);
    });
  };
  EXPECT_THAT(compare(false),
              Each("invalid: process 2 was started differently from process 0 (model); "
                   "'model: b' and not 'model: a'; 'layers: 2' and not 'layers: 1': give all the "
                   "same"));
  EXPECT_THAT(compare(true), Each("invalid: process 2 was started differently from process 0 "
                                  "(model); 'model: b' and not 'model: a': give all the same"));
}

TEST(Agreement, TheErrorOfTheFirstThatFailsIsThrownByAll) {
  const auto fails = [](auto& job, int process) {
    collectives::run_collectively(
        job,
        [process] {
          if (process > 0) engine::fail(Code::kDevice, "process {} has no device", process);
        },
        "devices");
  };
  EXPECT_THAT(thrown(fails), Each("device: process 1 has no device"));
  // The others must not wait for this process, whatever else it throws.
  const auto breaks = [](auto& job, int process) {
    collectives::run_collectively(
        job,
        [process] {
          if (process == 0) throw std::runtime_error("broken");
        },
        "devices");
  };
  EXPECT_THAT(thrown(breaks), Each("io: devices: broken"));
}

TEST(Agreement, TextsOfAnyLengthComeToTheFirstProcess) {
  const auto text = [](int process) {
    return std::string(std::size_t(process) * 300'000, char('a' + process));
  };
  EXPECT_THAT(thrown([&](auto& job, int process) {
                const auto all = collectives::collect(job, text(process), "texts");
                ASSERT_EQ(all.size(), std::size_t(process == 0 ? kProcesses : 0));
                for (std::size_t other = 0; other < all.size(); ++other)
                  EXPECT_EQ(all[other], text(int(other))) << other;
              }),
              Each("nothing"));
}

}  // namespace agreement_test
}  // namespace lockstep::test
