// SPDX-License-Identifier: MIT
// A failure is named, ends everything within its deadline, and leaves nothing behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "collectives/nccl/nccl.h"
#include "collectives/nccl/nccl_communicator.h"
#include "test/collectives/nccl/nccl_job.h"

namespace lockstep::collectives::nccl {
namespace nccl_failures_test {

using engine::Clock;
using engine::Code;
using engine::DType;
using engine::Error;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const Options kQuick{.deadline = milliseconds(200), .closing = milliseconds(100)};
const Options kQuickByHosts{
    .hierarchical = true, .deadline = milliseconds(200), .closing = milliseconds(100)};

void sum(const Rank& r) {
  std::vector<float> data(1000, 1.0f);
  r.communicator.all_reduce(reinterpret_cast<std::byte*>(data.data()), data.size(), DType::kFloat32,
                            r.stream);
  r.wait();
}

// Computes a sum, and waits until all ranks have completed it.
void sum_of_all(const Rank& r) {
  sum(r);
  r.bootstrap.all_gather({}, "an end of sums");
}

// Returns the error that `call` throws; if there is none, the test fails.
Error thrown(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {Code::kInvalid, ""};
}

TEST(NcclFailure, ARankThatNeverComesIsADeadlineWithRankAndCallAndAbortsTheOthers) {
  FakeNccl fake;
  const auto begin = Clock::now();
  const Errors errors = run_job(fake, {0, 0, 0}, kQuick, [](const Rank& r) {
    if (r.rank == 2) return;
    const Error error = thrown([&] { sum(r); });
    EXPECT_EQ(error.code(), Code::kTimeout);
    EXPECT_THAT(error.what(),
                AllOf(StartsWith("rank " + std::to_string(r.rank) + ": "),
                      HasSubstr("all_reduce of 1000 float32 among ranks 0 to 2 did not come to an "
                                "end within 200 ms")));
    EXPECT_EQ(std::string(thrown([&] { r.communicator.check(); }).what()), error.what())
        << "said again by every later call";
    EXPECT_EQ(std::string(thrown([&] { sum(r); }).what()), error.what());
  });
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
  EXPECT_GE(fake.aborted(), 2);
}

TEST(NcclFailure, ByHostsADeadlineEndsThePartsToo) {
  FakeNccl fake;
  const Errors errors = run_job(fake, {0, 0, 1, 1}, kQuickByHosts, [](const Rank& r) {
    if (r.rank == 3) return;
    const Error error = thrown([&] { sum(r); });
    EXPECT_EQ(error.code(), Code::kTimeout);
    EXPECT_THAT(error.what(),
                HasSubstr("hierarchical all_reduce of 1000 float32 among ranks 0 to 3"));
    EXPECT_TRUE(r.fake.idle(r.stream)) << "what was queued is gone";
  });
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
  EXPECT_GE(fake.aborted(), 9);
}

TEST(NcclFailure, AStartThatHangsIsADeadline) {
  FakeNccl fake;
  fake.never_starts = true;
  const Errors errors = run_job(fake, {0, 0}, kQuick, [](const Rank&) { FAIL(); });
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    ASSERT_TRUE(errors[rank]);
    EXPECT_EQ(errors[rank]->code(), Code::kTimeout);
    EXPECT_THAT(errors[rank]->what(), HasSubstr("NCCL's start among ranks 0 to 1"));
  }
  EXPECT_EQ(fake.aborted(), 2);
}

TEST(NcclFailure, AnEndThatHangsIsAbortedAndThrowsNothing) {
  FakeNccl fake;
  fake.never_finalizes = true;
  const auto begin = Clock::now();
  const Errors errors = run_job(fake, {0, 0, 1, 1}, kQuickByHosts, sum);
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
  EXPECT_EQ(fake.aborted(), 12);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
}

TEST(NcclFailure, OfTwoRanksTheLostOneIsNamed) {
  FakeNccl fake;
  const Errors errors = run_job(fake, {0, 0}, kQuick, [](const Rank& r) {
    sum_of_all(r);
    if (r.rank == 1) return r.fake.lose(1, "socketProgress: Connection closed\nby 10.0.0.2");
    const Error error = thrown([&] { sum(r); });
    EXPECT_EQ(error.code(), Code::kPeerLost);
    EXPECT_THAT(error.what(), HasSubstr("(socketProgress: Connection closed by 10.0.0.2)"));
    EXPECT_THAT(error.ranks(), ::testing::ElementsAre(1));
  });
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
}

TEST(NcclFailure, OfMoreRanksNobodyIsGuessedAndNcclsWordsAreTold) {
  for (const Options& options : {kQuick, kQuickByHosts}) {
    FakeNccl fake;
    const Errors errors = run_job(fake, {0, 0, 0, 1, 1, 1}, options, [&](const Rank& r) {
      sum_of_all(r);
      if (r.rank == 4) return r.fake.lose(4, "peer 10.0.0.2<41234> closed");
      const Error error = thrown([&] { sum(r); });
      EXPECT_EQ(error.code(), Code::kPeerLost) << error.what();
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("rank " + std::to_string(r.rank) + ": NCCL's "),
                        HasSubstr("remote process exited or there was a network error (peer "
                                  "10.0.0.2<41234> closed)")));
      // Only a communicator of two ranks names the lost rank.
      for (const int lost : error.ranks())
        EXPECT_TRUE(options.hierarchical && lost == 4) << error.what();
    });
    for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
  }
}

TEST(NcclFailure, AnAsynchronousErrorIsSeenByCheckAndNamesTheCall) {
  FakeNccl fake;
  run_job(fake, {0}, kQuick, [](const Rank& r) {
    r.communicator.check();
    r.fake.fail(0, ncclUnhandledCudaError, "an illegal memory access");
    const Error error = thrown([&] { r.communicator.check(); });
    EXPECT_EQ(error.code(), Code::kDevice);
    EXPECT_THAT(error.what(), HasSubstr("failed: unhandled cuda error (an illegal memory access)"));
  });
  EXPECT_EQ(fake.aborted(), 1);
}

TEST(NcclFailure, ACallThatIsRefusedNamesItselfAlsoInAGroup) {
  for (const Options& options : {kQuick, kQuickByHosts}) {
    FakeNccl fake;
    fake.answer = ncclInvalidUsage;
    const Errors errors = run_job(fake, {0, 0, 1, 1}, options, sum);
    for (const auto& error : errors) {
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), Code::kDevice);
      EXPECT_THAT(error->what(),
                  AllOf(HasSubstr(options.hierarchical ? "reduce_scatter of 448 float32 among ranks"
                                                       : "all_reduce of 1000 float32 among ranks"),
                        HasSubstr("failed: invalid usage")));
    }
  }
}

TEST(NcclFailure, WhoeverKnowsOfALossEndsTheWaits) {
  for (const Options& options : {Options{}, Options{.hierarchical = true}}) {
    FakeNccl fake;
    const Errors errors = run_job(fake, {0, 0, 1, 1}, options, [](const Rank& r) {
      sum_of_all(r);
      if (r.rank == 3) return r.bootstrap.abandon({Code::kPeerLost, "rank 3 died"});
      sum(r);
    });
    for (std::size_t rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(errors[rank]);
      EXPECT_EQ(errors[rank]->code(), Code::kPeerLost);
      EXPECT_STREQ(errors[rank]->what(), "rank 3 died");
    }
  }
}

TEST(NcclFailure, AnAbortEndsWhatIsQueuedAndGivesItsReason) {
  FakeNccl fake;
  run_job(fake, {0, 0}, kQuickByHosts, [](const Rank& r) {
    std::vector<float> data(10);
    if (r.rank == 0)
      r.communicator.all_reduce(reinterpret_cast<std::byte*>(data.data()), data.size(),
                                DType::kFloat32, r.stream);
    r.communicator.abort({Code::kAborted, "rank 1 ran out of files"});
    EXPECT_TRUE(r.fake.idle(r.stream));
    const Error error = thrown([&] { r.wait(); });
    EXPECT_EQ(error.code(), Code::kAborted);
    EXPECT_STREQ(error.what(), "rank 1 ran out of files");
  });
}

TEST(NcclMemory, IsRegisteredWithAllCommunicatorsAndGoesInAnyEnd) {
  for (const bool removed : {true, false}) {
    FakeNccl fake;
    std::atomic<int> registered = 0;
    run_well(fake, {0, 0, 1, 1}, {.hierarchical = true}, [&](const Rank& r) {
      const engine::Buffer arena = r.communicator.allocate(4096);
      r.communicator.add_memory(arena.data(), arena.bytes());
      EXPECT_THAT(thrown([&] { r.communicator.add_memory(arena.data(), 1); }).what(),
                  HasSubstr("registered with rank " + std::to_string(r.rank) + " twice"));
      r.bootstrap.all_gather({}, "registrations");
      registered = r.fake.registrations();
      r.bootstrap.all_gather({}, "and the end of them");
      if (removed) {
        r.communicator.remove_memory(arena.data());
        EXPECT_EQ(thrown([&] { r.communicator.remove_memory(arena.data()); }).code(),
                  Code::kInvalid);
      }
      sum(r);  // a refused request ends nothing
    });
    EXPECT_EQ(registered, 12);
  }
}

TEST(NcclMemory, OfAnAbortedCommunicatorIsTakenBackByNccl) {
  FakeNccl fake;
  run_job(fake, {0, 0}, kQuick, [](const Rank& r) {
    std::vector<std::byte> arena(64);
    r.communicator.add_memory(arena.data(), arena.size());
    r.communicator.abort({Code::kAborted, "over"});
    r.communicator.remove_memory(arena.data());
  });
}

TEST(NcclMemory, MoreThanThereIsIsAnErrorThatEndsNothing) {
  FakeNccl fake;
  run_well(fake, {0, 0}, {}, [](const Rank& r) {
    const Error error = thrown([&] { r.communicator.allocate(std::size_t(1) << 40); });
    EXPECT_EQ(error.code(), Code::kMemory);
    EXPECT_THAT(error.what(), HasSubstr("1099511627776 bytes"));
    sum(r);
  });
}

TEST(NcclMistake, OfARootThatIsNoRankEndsNothing) {
  FakeNccl fake;
  run_well(fake, {0, 0}, {}, [](const Rank& r) {
    std::byte data{};
    const Error error =
        thrown([&] { r.communicator.broadcast(&data, 1, DType::kInt32, 2, r.stream); });
    EXPECT_EQ(error.code(), Code::kInvalid);
    sum(r);
  });
}

TEST(NcclVersion, ThatIsTooOldIsOneLineWithWhatWouldHelp) {
  FakeNccl fake;
  fake.version = NCCL_VERSION(2, 18, 3);
  const Error error = thrown([&] { version_of(fake.functions()); });
  EXPECT_EQ(error.code(), Code::kUnavailable);
  EXPECT_THAT(error.what(), AllOf(StartsWith("NCCL 2.18.3 is too old: install NCCL 2.19.1"),
                                  Not(HasSubstr("\n"))));
  fake.version = 2804;
  EXPECT_THAT(thrown([&] { version_of(fake.functions()); }).what(), StartsWith("NCCL 2.8.4 is"));
  fake.version = NCCL_VERSION(2, 19, 1);
  EXPECT_EQ(version_of(fake.functions()), "2.19.1");
}

TEST(NcclVersion, ThatOneProcessHasNotFailsAll) {
  FakeNccl fake;
  const auto bootstraps = in_memory_bootstrap({0, 0, 0}, std::chrono::seconds(10));
  std::vector<std::jthread> ranks;
  for (const auto& bootstrap : bootstraps) {
    ranks.emplace_back([&, rank = bootstrap->process()] {
      const Error error = thrown([&] {
        NcclCommunicator::open(
            *bootstrap, [&] { return rank == 1 ? load_nccl("libnowhere.so.2") : fake.functions(); },
            {});
      });
      EXPECT_EQ(error.code(), Code::kUnavailable);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(rank == 1 ? "" : "process 1: "),
                                      HasSubstr("libnowhere.so.2 could not be opened")));
    });
  }
}

TEST(NcclVersion, MustBeTheSameInAllProcesses) {
  FakeNccl fake;
  const auto bootstraps = in_memory_bootstrap({0, 0}, std::chrono::seconds(10));
  std::vector<std::jthread> ranks;
  for (const auto& bootstrap : bootstraps) {
    ranks.emplace_back([&, rank = bootstrap->process()] {
      NcclFunctions functions = fake.functions();
      if (rank == 1)
        functions.get_version = [](int* version) {
          *version = NCCL_VERSION(2, 20, 5);
          return ncclSuccess;
        };
      const Error error =
          thrown([&] { NcclCommunicator::open(*bootstrap, [&] { return functions; }, {}); });
      EXPECT_EQ(error.code(), Code::kInvalid);
      EXPECT_THAT(error.what(), StartsWith("process 1 has NCCL 2.20.5, process 0 has 2."));
    });
  }
}

TEST(NcclLibrary, ThatIsMissingOrAnotherIsOneLineWithWhatWouldHelp) {
  const Error missing = thrown([] { load_nccl("libnowhere.so.2"); });
  EXPECT_EQ(missing.code(), Code::kUnavailable);
  EXPECT_THAT(missing.what(), AllOf(StartsWith("libnowhere.so.2 could not be opened ("),
                                    HasSubstr("): install NCCL"), Not(HasSubstr("\n"))));
  const Error another = thrown([] { load_nccl("libm.so.6"); });
  EXPECT_EQ(another.code(), Code::kUnavailable);
  EXPECT_THAT(another.what(), StartsWith("libm.so.6 has no ncclGetVersion, so it is too old"));
}

// If this machine has the library, all functions are found; otherwise the text says why not.
TEST(NcclLibrary, IsFoundAndToldOrItIsSaidWhyNot) {
  if (available()) {
    EXPECT_EQ(finding(), "NCCL " + version());
    EXPECT_NE(load_nccl().comm_deregister, nullptr);
  } else {
    EXPECT_EQ(version(), "");
    EXPECT_THAT(finding(), AllOf(HasSubstr("install NCCL"), Not(HasSubstr("\n"))));
  }
}

}  // namespace nccl_failures_test
}  // namespace lockstep::collectives::nccl
