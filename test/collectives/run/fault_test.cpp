// SPDX-License-Identifier: MIT
// Delays change no bits. A lost peer and an absent rank are named, and no rank waits forever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <thread>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/registry.h"
#include "collectives/check/verifier.h"
#include "test/collectives/job.h"

namespace lockstep::test {
namespace fault_test {

using engine::Code;
using engine::kBlock;
using std::chrono::milliseconds;
using testing::HasSubstr;

Plan ring(const std::vector<int>& host, std::size_t length, const char* name = "bucket 0") {
  Request request;
  request.name = name;
  request.subject = {0, length};
  request.host = host;
  request.chunk_bytes = kBlock * sizeof(float);  // at least two segments
  return ring_all_reduce(request);
}

Plan direct(int ranks, std::size_t length, const char* name = "bucket 0") {
  Request request;
  request.name = name;
  request.subject = {0, length};
  request.host = hosts("one", ranks);
  return direct_all_reduce(request);
}

Code code_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const engine::Error& e) {
    return e.code();
  }
}

TEST(Faults, DelaysChangeNoBits) {
  constexpr std::size_t kLength = 8 * kBlock + 11;
  const auto run = [&](const collectives::Algorithm& algorithm, collectives::Faults faults) {
    JobOptions options;
    options.faults = faults;
    Request request;
    request.subject = {0, kLength};
    request.host = hosts("unequal", 5);
    request.chunk_bytes = 2 * kBlock * sizeof(float);
    Job job({{algorithm.make(request), {}, false}}, 8 * kLength, options);
    for (int rank = 0; rank < 5; ++rank)
      for (std::size_t i = 0; i < kLength; ++i)
        job.values<float>(rank)[i] = 1.0f / float(i + 1 + std::size_t(rank) * 7);
    for (int step = 0; step < 2; ++step) job.execute({0});
    std::vector<float> all;
    for (int rank = 0; rank < 5; ++rank)
      all.insert(all.end(), job.values<float>(rank), job.values<float>(rank) + kLength);
    return all;
  };
  for (const collectives::Algorithm& algorithm : collectives::all_reduce_algorithms()) {
    if (!algorithm.refusal(hosts("unequal", 5)).empty()) continue;
    const std::vector<float> still = run(algorithm, {});
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      collectives::Faults faults;
      faults.seed = seed, faults.delayed_of_ten = 6, faults.most_delay_polls = 9;
      const std::vector<float> delayed = run(algorithm, faults);
      ASSERT_EQ(std::memcmp(delayed.data(), still.data(), still.size() * sizeof(float)), 0)
          << algorithm.name << " " << seed;
    }
  }
}

// Rank 1 of a ring of three is lost at its k-th message, for every k, and both others are told its
// name. Only its last messages, one in each of two lanes, go to rank 2 alone, so rank 0 may have
// ended by then. With one message more than it has, nothing happens.
TEST(Faults, ALostPeerIsNamedByAllOthersWhateverItsLastMessage) {
  constexpr std::size_t kLength = 6 * kBlock;
  const Plan plan = ring(hosts("apart", 3), kLength);
  int posts = 0;
  for (const auto& lane : plan.lanes[1])
    for (const auto& step : lane) posts += step.peer >= 0;
  ASSERT_EQ(posts, 16);
  for (int k = 0; k <= posts; ++k) {
    JobOptions options;
    options.faults.lost_rank = 1, options.faults.lost_at_message = k;
    Job job({{plan, {}, false}}, 2 * kLength, options);
    const auto errors = job.run([&](int rank) {
      job.executor(rank).start(0, nullptr);
      job.executor(rank).wait(0);
    });
    for (const int rank : {0, 2}) {
      if (k == posts) {
        EXPECT_FALSE(errors[std::size_t(rank)]) << text(errors[std::size_t(rank)]);
        continue;
      }
      if (rank == 0 && k >= posts - 2 && job.executor(0).done(0)) continue;
      ASSERT_TRUE(errors[std::size_t(rank)]) << "message " << k << ", rank " << rank;
      EXPECT_EQ(code_of(errors[std::size_t(rank)]), Code::kPeerLost);
      EXPECT_THAT(text(errors[std::size_t(rank)]), HasSubstr("rank 1 is lost"));
    }
  }
}

TEST(Faults, ARankThatNeverComesIsNamedByAllOthers) {
  JobOptions options;
  options.executor.deadline = milliseconds(200);
  Job job({{direct(4, 5000), {}, false}}, 5000, options);
  const auto begin = engine::Clock::now();
  const auto errors = job.run([&](int rank) {
    if (rank == 3) return;
    job.executor(rank).start(0, nullptr);
    job.executor(rank).wait(0);
  });
  const auto took = engine::Clock::now() - begin;
  EXPECT_GE(took, milliseconds(200));
  EXPECT_LE(took, milliseconds(200) + std::chrono::seconds(2));
  const std::string first = text(errors[0]);
  EXPECT_THAT(first, testing::MatchesRegex(
                         "rank 3 is missing: bucket 0 .direct, 19.5 KiB.: rank [012] waited "
                         "200 ms; arrived: ranks 0 1 2"));
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(text(errors[std::size_t(rank)]), first);
    EXPECT_EQ(code_of(errors[std::size_t(rank)]), Code::kTimeout);
  }
  // Then everything fails at once with the first cause, on rank 3 too.
  job.executor(3).start(0, nullptr);
  EXPECT_FALSE(job.executor(3).progress());
  for (int again = 0; again < 2; ++again) {
    try {
      job.executor(3).wait(0);
      ADD_FAILURE() << "a wait after the end";
    } catch (const engine::Error& error) {
      EXPECT_EQ(error.code(), Code::kTimeout);
      EXPECT_EQ(error.what(), first);
    }
  }
}

// An error carries the lost ranks, and its text may name any others. A rank that has not arrived
// for another reason is not missing.
TEST(Faults, OnlyThoseWhoWereLostAreMissingWhereverTheReasonNamesThem) {
  const auto told = [](const std::string& why, const std::vector<int>& lost) {
    Job job({{direct(4, 10), {}, false}}, 10);
    job.executor(0).start(0, nullptr);
    job.executor(0).progress();
    job.team(0).stop({Code::kPeerLost, why, lost});
    try {
      job.executor(0).wait(0);
    } catch (const engine::Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const std::string waits =
      "; rank 0 waits for bucket 0 (direct, 40 bytes); arrived: rank 0; missing: ";
  struct Case {
    std::string why;
    std::vector<int> lost;
    std::string missing;
  };
  for (const Case& c : {
           Case{"rank 1 (pid 4711) died", {1}, "rank 1"},
           Case{"ranks 1 to 2 (pid 4711) died", {1, 2}, "ranks 1 2"},
           Case{"rank 2 is lost, rank 1 notices", {2}, "rank 2"},
           Case{"one died; another died", {3, 1, 3}, "ranks 1 3"},
           Case{"rank 1 died", {}, "ranks 1 2 3"},
           Case{"rank 4 of another job died", {4}, "ranks 1 2 3"},
       })
    EXPECT_EQ(told(c.why, c.lost), c.why + waits + c.missing);
}

// Two ranks wait in different plans, and the third waits nowhere. Only the third is missing, and no
// rank is listed as arrived that has not arrived.
TEST(Faults, ARankThatWaitsInAnotherPlanIsElsewhere) {
  JobOptions options;
  options.executor.deadline = milliseconds(300);
  Job job({{direct(3, 10, "one"), {}, false}, {direct(3, 10, "other"), {}, false}}, 10, options);
  const auto errors = job.run([&](int rank) {
    if (rank == 2) return;
    job.executor(rank).start(rank, nullptr);
    job.executor(rank).wait(rank);
  });
  EXPECT_THAT(text(errors[0]),
              testing::AnyOf(
                  testing::MatchesRegex("rank 2 is missing: one .direct, 40 bytes.: rank 0 waited "
                                        "300 ms; arrived: rank 0; elsewhere: rank 1"),
                  testing::MatchesRegex("rank 2 is missing: other .direct, 40 bytes.: rank 1 "
                                        "waited 300 ms; arrived: rank 1; elsewhere: rank 0")));
}

// The same holds across hosts: rank 2 answers from the plan that it waits in.
TEST(Faults, ARankOfAnotherHostThatWaitsInAnotherPlanIsElsewhere) {
  constexpr milliseconds kAnswer{1000};
  JobOptions options;
  options.executor.deadline = milliseconds(50);
  options.executor.answer = kAnswer;
  Job job({{ring({0, 1, 2}, 10, "one"), {}, false}, {ring({0, 1, 2}, 10, "other"), {}, false}}, 40,
          options);
  job.executor(0).start(0, nullptr);
  job.executor(2).start(1, nullptr);
  // The loop lasts until rank 0 has asked rank 2, and ends before rank 0 would name a rank that it
  // asked.
  const auto begin = engine::Clock::now();
  while (engine::Clock::now() - begin < kAnswer * 2) {
    for (const int rank : {0, 2}) job.executor(rank).progress();
    std::this_thread::sleep_for(milliseconds(1));
  }
  job.team(0).stop({Code::kPeerLost, "rank 1 (pid 4711) died", {1}});
  try {
    job.executor(0).wait(0);
    ADD_FAILURE() << "rank 1 was lost";
  } catch (const engine::Error& error) {
    EXPECT_STREQ(error.what(),
                 "rank 1 (pid 4711) died; rank 0 waits for one (ring, 40 bytes); arrived: rank 0; "
                 "elsewhere: rank 2; missing: rank 1");
  }
}

// The deadline of one call is shorter than that of the executor. The error has the purpose.
TEST(Faults, ACallMayHaveADeadlineAndAPurpose) {
  JobOptions options;
  options.executor.deadline = milliseconds(600000);
  Job job({{direct(3, 10, "votes"), {}, false}}, 10, options);
  job.executor(0).start(0, nullptr);
  try {
    job.executor(0).wait(0, "save of step 100", milliseconds(60));
    FAIL() << "nobody else came";
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), Code::kTimeout);
    EXPECT_STREQ(error.what(),
                 "ranks 1 2 are missing: save of step 100: votes (direct, 40 bytes): rank 0 waited "
                 "60 ms; arrived: rank 0");
  }
}

// Returns what rank 0 of `ranks` is told if only the ranks come for which `comes` returns true.
std::string told_to_the_first(int ranks, const std::function<bool(int)>& comes) {
  JobOptions options;
  options.executor.deadline = milliseconds(600000);
  Job job({{direct(ranks, 10), {}, false}}, 10, options);
  for (int rank = 0; rank < ranks; ++rank) {
    if (!comes(rank)) continue;
    job.executor(rank).start(0, nullptr);
    job.executor(rank).progress();
  }
  try {
    job.executor(0).wait(0, {}, milliseconds(60));
  } catch (const engine::Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// A reason has 1,023 bytes, so that hundreds of missing ranks are named in few words.
TEST(Faults, HundredsOfMissingRanksAreNamedInFewWords) {
  const auto told = [](const std::string& missing, const std::string& arrived) {
    return testing::AllOf(testing::StartsWith(missing + " are missing: "),
                          testing::EndsWith("; arrived: " + arrived));
  };
  EXPECT_THAT(told_to_the_first(300, [](int rank) { return rank == 0; }),
              told("ranks 1 to 299", "rank 0"));
  EXPECT_THAT(told_to_the_first(300, [](int rank) { return rank != 7 && rank / 10 != 12; }),
              told("ranks 7 120 to 129", "ranks 0 to 6 8 to 119 130 to 299"));
  EXPECT_THAT(told_to_the_first(12, [](int rank) { return rank < 4 || rank > 8; }),
              told("ranks 4 to 8", "ranks 0 1 2 3 9 10 11"));
  const std::string in_turn = told_to_the_first(300, [](int rank) { return rank % 2 == 0; });
  EXPECT_THAT(in_turn, testing::StartsWith("ranks 1 3 5 "));
  EXPECT_THAT(in_turn, HasSubstr(" ... and 134 more are missing: "));
  EXPECT_THAT(in_turn, HasSubstr("; arrived: ranks 0 2 4 "));
  EXPECT_THAT(in_turn, testing::EndsWith(" ... and 134 more"));
}

TEST(Faults, TheDeadlineOfAMessageNamesItsPeer) {
  JobOptions options;
  options.executor.deadline = milliseconds(60);
  Job job({{ring({0, 1}, 10), {}, false}}, 20, options);
  job.executor(0).start(0, nullptr);
  try {
    job.executor(0).wait(0);
    FAIL() << "nobody else came";
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), Code::kTimeout);
    EXPECT_THAT(
        error.what(),
        testing::MatchesRegex(
            "rank 1 is missing: bucket 0 .ring, 40 bytes.: rank 0 waited 60 ms; arrived: rank 0"));
  }
}

// A plan does not hang either if its predecessor was not started.
TEST(Faults, APlanThatComesAfterOneThatWasNotStartedIsNamed) {
  JobOptions options;
  options.executor.deadline = milliseconds(60);
  Job job({{direct(1, 10, "sum"), {}, false}, {direct(1, 10, "update"), {0}, false}}, 10, options);
  job.executor(0).start(1, nullptr);
  try {
    job.executor(0).wait(1);
    FAIL() << "it comes after another";
  } catch (const engine::Error& error) {
    EXPECT_STREQ(error.what(),
                 "update (direct, 40 bytes): rank 0 waited 60 ms; it comes after sum, which rank 0 "
                 "has not started");
  }
}

// A rank that polled once, computed for longer than the deadline, and polls again does not blame
// the others for its own absence.
TEST(Faults, TimeInWhichNobodyLookedDoesNotCount) {
  JobOptions options;
  options.executor.deadline = milliseconds(250);
  Job job({{direct(2, 10), {}, false}}, 10, options);
  job.executor(0).start(0, nullptr);
  job.executor(0).progress();
  std::this_thread::sleep_for(milliseconds(300));
  job.executor(0).progress();
  EXPECT_FALSE(job.team(0).stopped());
  job.executor(1).start(0, nullptr);
  for (int i = 0; i < 100; ++i) job.executor(i % 2).progress();
  EXPECT_TRUE(job.executor(0).done(0));
}

TEST(Faults, AnExceptionOnOneRankStopsTheOthersWithItsText) {
  std::atomic<int> blocks{0};
  JobOptions options;
  options.executor.hook = [&] {
    if (++blocks == 5) throw std::runtime_error("a broken block");
  };
  Job job({{direct(3, 9 * kBlock), {}, false}}, 9 * kBlock, options);
  for (const auto& error : job.run([&](int rank) {
         job.executor(rank).start(0, nullptr);
         job.executor(rank).wait(0);
       })) {
    EXPECT_EQ(text(error), "bucket 0: a broken block");
    EXPECT_EQ(code_of(error), Code::kAborted);
  }
}

TEST(Faults, MessagesOfUnequalLengthsAreRefusedOnBothSides) {
  collectives::MemoryFabric fabric(2);
  const auto a = fabric.connect(0), b = fabric.connect(1);
  std::byte data[8] = {};
  const int send = a->post_send(1, 5, data, 8), receive = b->post_receive(0, 5, data, 4);
  EXPECT_THROW(a->test(send), engine::Error);
  EXPECT_THROW(b->test(receive), engine::Error);
}

TEST(Faults, MessagesOfOneTagArriveInOrderAndTagsOvertake) {
  collectives::Faults faults;
  faults.delayed_of_ten = 10, faults.most_delay_polls = 3;
  collectives::MemoryFabric fabric(2, faults);
  const auto a = fabric.connect(0), b = fabric.connect(1);
  const std::int32_t sent[3] = {1, 2, 3};
  std::int32_t got[3] = {};
  const auto bytes = [](auto* p) { return reinterpret_cast<std::byte*>(p); };
  const auto const_bytes = [](auto* p) { return reinterpret_cast<const std::byte*>(p); };
  for (const int i : {0, 1}) a->post_send(1, 7, const_bytes(&sent[i]), 4);
  a->post_send(1, 8, const_bytes(&sent[2]), 4);
  const int other = b->post_receive(0, 8, bytes(&got[2]), 4);
  const int first = b->post_receive(0, 7, bytes(&got[0]), 4);
  const int second = b->post_receive(0, 7, bytes(&got[1]), 4);
  const auto finish = [&](int request) {
    for (int i = 0; i < 20; ++i)
      if (b->test(request)) return true;
    return false;
  };
  EXPECT_TRUE(finish(other) && finish(second) && finish(first));
  EXPECT_EQ(std::vector<std::int32_t>(got, got + 3), (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(fabric.messages(), 3u);
  EXPECT_EQ(fabric.bytes_sent(0), 12u);
  EXPECT_EQ(fabric.bytes_sent(1), 0u);
}

TEST(Faults, AnExecutorWithoutATransportRefusesMessages) {
  Request request;
  request.name = "p";
  request.subject = {0, 10};
  request.host = {0, 1};
  const StepPlan step{{ring_all_reduce(request), {}, false}};
  engine::Buffer control(collectives::Team::control_bytes(1, 1));
  collectives::Team team({0}, 1, control.data());
  const auto ops = engine::reference_ops(DType::kFloat32);
  Executor executor(0, team, nullptr, *ops, {}, {});
  EXPECT_THROW(executor.open(step), engine::Error);
}

// Sleeps until it is woken, for a minute at most, and counts the sleeps that a wake ended.
class Sleeping : public collectives::Transport {
 public:
  Sleeping(std::unique_ptr<collectives::Transport> inner, std::atomic<int>& asleep,
           std::atomic<int>& woken)
      : inner_(std::move(inner)), asleep_(asleep), woken_(woken) {}
  int post_send(int peer, int tag, const std::byte* data, std::size_t bytes) override {
    return inner_->post_send(peer, tag, data, bytes);
  }
  int post_receive(int peer, int tag, std::byte* data, std::size_t bytes) override {
    return inner_->post_receive(peer, tag, data, bytes);
  }
  bool test(int request) override { return inner_->test(request); }
  bool progress() override { return inner_->progress(); }
  void sleep(int) override {
    std::unique_lock lock(mutex_);
    ++asleep_;
    if (changed_.wait_for(lock, std::chrono::minutes(1), [&] { return wakes_ > 0; })) ++woken_;
    wakes_ = 0;
  }
  bool wake() noexcept override {
    std::scoped_lock lock(mutex_);
    ++wakes_;
    changed_.notify_all();
    return true;
  }

 private:
  std::unique_ptr<collectives::Transport> inner_;
  std::atomic<int>&asleep_, &woken_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int wakes_ = 0;
};

// A communication thread sleeps on the transport for a message of one plan, and another thread
// starts a second plan. The second plan begins at once, and not when the message comes.
TEST(Faults, WhatAnotherThreadStartsEndsASleepOnTheTransport) {
  std::atomic<int> asleep{0}, woken{0};
  JobOptions options;
  collectives::Transport* transport = nullptr;
  options.wrap = [&](int rank, std::unique_ptr<collectives::Transport> inner) {
    if (rank == 0) inner = std::make_unique<Sleeping>(std::move(inner), asleep, woken);
    if (rank == 0) transport = inner.get();
    return inner;
  };
  Job job({{ring(hosts("apart", 2), kBlock, "first"), {}, false},
           {ring(hosts("apart", 2), kBlock, "second"), {}, false}},
          4 * kBlock, options);
  job.executor(0).start(0, nullptr);
  std::atomic<bool> over{false};
  std::jthread communication([&] {
    while (!over) job.executor(0).sleep(std::chrono::microseconds(1'000'000));
  });
  // The first sleep ends at once: an executor first tests whether its transport can be woken.
  while (asleep < 2) std::this_thread::sleep_for(milliseconds(1));
  const int before = woken;
  job.executor(0).start(1, nullptr);
  while (asleep < 3) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(woken, before + 1);
  over = true;
  transport->wake();
  communication.join();
  job.executor(1).start(0, nullptr), job.executor(1).start(1, nullptr);
  while (!job.executor(1).done(0) || !job.executor(1).done(1)) {
    job.executor(1).progress();
    job.executor(0).progress();
  }
}

}  // namespace fault_test
}  // namespace lockstep::test
