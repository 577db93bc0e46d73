// SPDX-License-Identifier: MIT
// Memory that processes of a host map from each other, and the error on all of them if one fails.
// Threads play the processes.
#include "collectives/job/host_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "collectives/topology/machine.h"
#include "engine/base/error.h"

namespace lockstep::test {
namespace host_memory_test {

using namespace std::chrono_literals;
using collectives::HostMemory;
using engine::Code;
using engine::Error;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;

// Wraps a bootstrap; `change` may alter the texts that were received.
class Changed : public collectives::Bootstrap {
 public:
  using Change = std::function<void(const std::string& what, std::vector<std::string>& heard)>;
  Changed(collectives::Bootstrap& other, Change change)
      : other_(other), change_(std::move(change)) {}
  std::string description() const override { return other_.description(); }
  int process() const override { return other_.process(); }
  int processes() const override { return other_.processes(); }
  std::vector<int> hosts() const override { return other_.hosts(); }
  void abandon(const Error& why) noexcept override { other_.abandon(why); }
  void throw_if_abandoned() override { other_.throw_if_abandoned(); }
  void finish() override { other_.finish(); }
  std::vector<std::string> all_gather(const std::string& mine, const std::string& what) override {
    auto heard = other_.all_gather(mine, what);
    change_(what, heard);
    return heard;
  }

 private:
  collectives::Bootstrap& other_;
  Change change_;
};

constexpr std::size_t kBlock = 4096, kFarTooMuch = std::size_t(1) << 60;

// Returns what each process that makes memory is told: two on one host, the third on another. No
// process may wait for a deadline.
std::vector<std::string> told(const std::function<std::size_t(int process)>& block,
                              const std::function<void(int process, const std::string& what,
                                                       std::vector<std::string>& heard)>& change) {
  const auto views = collectives::in_memory_bootstrap({0, 0, 1}, 60s);
  std::vector<std::string> told(views.size(), "nothing");
  std::vector<std::thread> threads;
  for (int process = 0; process < int(views.size()); ++process)
    threads.emplace_back([&, process] {
      Changed mine(*views[std::size_t(process)],
                   [&](const std::string& what, auto& heard) { change(process, what, heard); });
      try {
        HostMemory(collectives::rank_of_each_process(mine), block(process), kBlock, "test: ");
      } catch (const Error& error) {
        told[std::size_t(process)] = fmt::format("{}: {}", name(error.code()), error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  return told;
}

TEST(HostMemory, NothingIsToldWhereAllGoesWell) {
  EXPECT_THAT(told([](int) { return kBlock; }, [](int, const std::string&, auto&) {}),
              Each("nothing"));
}

// If one process is refused memory, all are told. Here all believe that there is room.
TEST(HostMemory, WhenOneIsRefusedMemoryAllAreTold) {
  const auto all = told([](int process) { return process == 1 ? kFarTooMuch : kBlock; },
                        [](int, const std::string& what, auto& heard) {
                          if (what == "test: room for the ranks")
                            for (std::string& text : heard) text = "0 0";
                        });
  EXPECT_THAT(all, Each(AllOf(StartsWith("io"), HasSubstr(std::to_string(kFarTooMuch)),
                              HasSubstr("lockstep test: rank 1"))));
  EXPECT_THAT(all[2], HasSubstr("process 1: "));
}

TEST(HostMemory, WhenOneCannotMapAllAreTold) {
  const auto all = told([](int) { return kBlock; },
                        [](int process, const std::string& what, auto& heard) {
                          if (process == 1 && what == "test: memory of the ranks")
                            heard[0] = "+1:x:3:4\n" + heard[0].substr(1);
                        });
  EXPECT_THAT(all, Each(AllOf(StartsWith("invalid"), HasSubstr("\"1:x:3:4\" is no address"))));
  EXPECT_THAT(all[0], HasSubstr("process 1: "));
}

// Processes of a host share its free memory, although each of them alone would find room.
TEST(HostMemory, ProcessesOfAHostShareWhatIsFree) {
  const std::size_t most = collectives::available_memory() / 5 * 3 / kBlock * kBlock;
  const auto all = told([&](int process) { return process == 2 ? kBlock : most; },
                        [](int, const std::string&, auto&) {});
  EXPECT_THAT(all, Each(AllOf(StartsWith("io: test: no"),
                              HasSubstr("shared memory for 2 processes of a host"))));
}

}  // namespace host_memory_test
}  // namespace lockstep::test
