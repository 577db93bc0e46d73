// SPDX-License-Identifier: MIT
// Messages over sockets arrive whole and in order, whatever comes first.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <map>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/random.h"
#include "test/collectives/tcp/tcp_ranks.h"

namespace lockstep::collectives {
namespace tcp_messages_test {

using namespace std::chrono_literals;
using engine::Code;
using engine::Error;
using engine::Random;
using testing::AllOf;
using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

// Returns the contents of a message, as its sender and its receiver both know them.
Bytes content(std::size_t bytes, std::uint64_t key) {
  std::vector<std::uint64_t> words((bytes + 7) / 8);
  std::uint64_t x = key * 0x9e3779b97f4a7c15u + 1;
  for (std::uint64_t& word : words) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    word = x;
  }
  Bytes data(bytes);
  if (bytes > 0) std::memcpy(data.data(), words.data(), bytes);
  return data;
}

bool same(const Bytes& a, const Bytes& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

std::uint64_t key_of(int from, int to, int tag, int count) {
  return ((std::uint64_t(from) * 64 + std::uint64_t(to)) * 64 + std::uint64_t(tag)) * 1024 +
         std::uint64_t(count);
}

struct Message {
  int peer = 0, tag = 0, count = 0;  // count: index within this peer and tag
  std::size_t bytes = 0;
};

Error error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(Code::kInvalid, "");
}

// Returns what `from` sends to `to`; both know it.
std::vector<Message> messages(int from, int to, std::uint64_t seed) {
  constexpr std::size_t kSizes[] = {0,      1,      15,     16,      17,       4096,
                                    60'000, 60'000, 60'000, 300'000, 5'000'000};
  Random random(seed, std::uint64_t(from) * 100 + std::uint64_t(to));
  std::map<int, int> counts;
  std::vector<Message> all;
  for (int i = 0; i < 12; ++i) {
    const int tag = int(random.below(5));
    all.push_back({.peer = to,
                   .tag = tag,
                   .count = counts[tag]++,
                   .bytes = kSizes[random.below(std::size(kSizes))]});
  }
  return all;
}

class TcpMessages : public testing::TestWithParam<std::uint64_t> {};

// Each rank posts its sends to all and its receives from all in one random order, with progress in
// between. Only the order within a peer and a tag is kept.
TEST_P(TcpMessages, ArriveWholeInTheOrderOfTheirTagWhateverTheOrderOfThePosts) {
  constexpr int kRanks = 4;
  const std::uint64_t seed = GetParam();
  const auto transports = connect_all(kRanks);
  on_threads(kRanks, [&](int me) {
    Transport& transport = *transports[std::size_t(me)];
    Random random(seed, 77 + std::uint64_t(me));
    struct Job {
      Message message;
      bool send;
      Bytes data;
      int request = -1;
    };
    std::vector<std::vector<Job>> queues;  // per peer, tag and direction, in order
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == me) continue;
      for (const bool send : {true, false}) {
        std::map<int, std::vector<Job>> by_tag;
        for (Message m : send ? messages(me, peer, seed) : messages(peer, me, seed)) {
          m.peer = peer;
          by_tag[m.tag].push_back(
              {m, send,
               send ? content(m.bytes, key_of(me, peer, m.tag, m.count)) : Bytes(m.bytes)});
        }
        for (auto& [tag, jobs] : by_tag) queues.push_back(std::move(jobs));
      }
    }
    std::vector<Job*> posted;
    std::vector<std::size_t> next(queues.size(), 0);
    for (;;) {
      std::vector<std::size_t> open;
      for (std::size_t q = 0; q < queues.size(); ++q) {
        if (next[q] < queues[q].size()) open.push_back(q);
      }
      if (open.empty()) break;
      const std::size_t q = open[random.below(open.size())];
      Job& job = queues[q][next[q]++];
      const Message& m = job.message;
      job.request = job.send ? transport.post_send(m.peer, m.tag, job.data.data(), m.bytes)
                             : transport.post_receive(m.peer, m.tag, job.data.data(), m.bytes);
      posted.push_back(&job);
      if (random.below(3) == 0) transport.progress();
    }
    for (Job* job : posted) {
      wait_for(transport, job->request);
      const Message& m = job->message;
      if (job->send) continue;
      EXPECT_TRUE(same(job->data, content(m.bytes, key_of(m.peer, me, m.tag, m.count))))
          << m.peer << " to " << me << " tag " << m.tag << " number " << m.count << " bytes "
          << m.bytes;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Seeds, TcpMessages, testing::Values(1, 2, 3));

TEST(TcpTransport, AMessageNobodyWaitsForYetDoesNotHoldUpTheNext) {
  const auto ranks = connect_all(2);
  const Bytes early = content(3'000'000, 1), wanted = content(2'000'000, 2);
  Bytes first(early.size()), second(wanted.size());
  const int a = ranks[0]->post_send(1, 8, early.data(), early.size());
  const int b = ranks[0]->post_send(1, 9, wanted.data(), wanted.size());
  std::jthread sender([&] {
    wait_for(*ranks[0], a);
    wait_for(*ranks[0], b);
  });
  wait_for(*ranks[1], ranks[1]->post_receive(0, 9, second.data(), second.size()));
  EXPECT_TRUE(same(second, wanted));
  wait_for(*ranks[1], ranks[1]->post_receive(0, 8, first.data(), first.size()));
  EXPECT_TRUE(same(first, early));
}

TEST(TcpTransport, APostTakesOverAMessageThatIsHalfReceived) {
  const auto ranks = connect_all(2);
  const Bytes early = content(20'000'000, 3);
  Bytes late(early.size());
  const int request = ranks[0]->post_send(1, 8, early.data(), early.size());
  for (int i = 0; i < 4; ++i) {  // only a part: what the socket holds
    ranks[0]->progress();
    ranks[1]->progress();
  }
  ASSERT_FALSE(ranks[0]->test(request));
  const int receive = ranks[1]->post_receive(0, 8, late.data(), late.size());
  EXPECT_FALSE(ranks[1]->test(receive));
  std::jthread sender([&] { wait_for(*ranks[0], request); });
  wait_for(*ranks[1], receive);
  EXPECT_TRUE(same(late, early));
}

TEST(TcpTransport, AnotherLengthThanPostedIsAnErrorWhoeverComesFirst) {
  for (const bool post_first : {true, false}) {
    const auto ranks = connect_all(2);
    const Bytes data(100);
    Bytes got(200);
    const Error error = error_of([&] {
      int request = -1;
      if (post_first) request = ranks[1]->post_receive(0, 7, got.data(), got.size());
      ranks[0]->post_send(1, 7, data.data(), data.size());
      if (!post_first) {
        wait_until_still(*ranks[1]);
        request = ranks[1]->post_receive(0, 7, got.data(), got.size());
      }
      wait_for(*ranks[1], request);
    });
    EXPECT_EQ(error.code(), Code::kInvalid);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("message 7"), HasSubstr("rank 0"), HasSubstr("100"),
                                    HasSubstr("200")));
    EXPECT_THROW(ranks[1]->progress(), Error);  // the error stays
  }
}

TEST(TcpTransport, NumbersOfRequestsAreUsedAgain) {
  const auto ranks = connect_all(2);
  std::byte one{1}, two{};
  int most = 0;
  for (int i = 0; i < 200; ++i) {
    const int send = ranks[0]->post_send(1, 1, &one, 1),
              receive = ranks[1]->post_receive(0, 1, &two, 1);
    most = std::max({most, send, receive});
    wait_for(*ranks[0], send);
    wait_for(*ranks[1], receive);
  }
  EXPECT_EQ(most, 0);
}

TEST(TcpTransport, ARankWithoutConnectionIsRefusedByName) {
  const auto ranks = connect_all(2);
  std::byte one{1};
  EXPECT_THAT(error_of([&] { ranks[0]->post_send(5, 1, &one, 1); }).what(), HasSubstr("rank 5"));
}

TEST(TcpTransport, SleepEndsWhenSomethingComesAndWhenTheTimeIsOver) {
  const auto ranks = connect_all(2);
  std::byte one{1}, two{};
  ranks[1]->sleep(1000);  // ends although nothing comes
  const int receive = ranks[1]->post_receive(0, 1, &two, 1);
  ranks[0]->post_send(1, 1, &one, 1);
  const auto begin = engine::Clock::now();
  ranks[1]->sleep(10'000'000);
  EXPECT_LT(engine::Clock::now() - begin, 5s);
  EXPECT_TRUE(ranks[1]->progress());
  EXPECT_TRUE(ranks[1]->test(receive));
}

// Without the wake each of these sleeps would last a minute.
TEST(TcpMessages, ASleepEndsWhenAnotherThreadWakesIt) {
  const auto transports = connect_all(2);
  Transport& transport = *transports[0];
  const auto begin = engine::Clock::now();
  std::atomic<int> slept{0};
  std::jthread sleeper([&] {
    for (int i = 0; i < 3; ++i) {
      transport.sleep(60'000'000);
      ++slept;
    }
  });
  while (slept < 3) {
    EXPECT_TRUE(transport.wake());
    std::this_thread::sleep_for(1ms);
  }
  sleeper.join();
  EXPECT_TRUE(transport.wake());  // a wake before a sleep ends it
  transport.sleep(60'000'000);
  EXPECT_LT(engine::Clock::now() - begin, 30s);
}

// A wake that ended a sleep does not end the next one.
TEST(TcpMessages, AWakeIsUsedUp) {
  const auto transports = connect_all(2);
  ASSERT_TRUE(transports[0]->wake());
  transports[0]->sleep(60'000'000);
  const auto begin = engine::Clock::now();
  transports[0]->sleep(20'000);
  EXPECT_GE(engine::Clock::now() - begin, 20ms);
}

}  // namespace tcp_messages_test
}  // namespace lockstep::collectives
