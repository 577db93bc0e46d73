// SPDX-License-Identifier: MIT
// How connections come about, and who is kept out.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>

#include "collectives/tcp/rendezvous.h"
#include "collectives/tcp/socket.h"
#include "engine/base/error.h"
#include "test/wire/tcp_ranks.h"

namespace lockstep::collectives {
namespace tcp_meeting_test {

using namespace std::chrono_literals;
using engine::Code;
using engine::Error;
using testing::AllOf;
using testing::HasSubstr;

Error error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(Code::kInvalid, "");
}

// A client that is none of ours: connected, blocking, with a limit on every wait.
class Stranger {
 public:
  explicit Stranger(const TcpFabric& fabric) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const std::string address = fabric.address();
    to.sin_port = htons(std::uint16_t(std::stoi(address.substr(address.rfind(':') + 1))));
    const timeval most{15, 0};
    setsockopt(socket_.file(), SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    connected_ = ::connect(socket_.file(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }
  bool connected() const { return connected_; }
  void say(const std::string& text) const {
    ::send(socket_.file(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  // True when the other side closes without having said anything.
  bool closed_without_a_word() const {
    char byte = 0;
    const auto got = ::recv(socket_.file(), &byte, 1, 0);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }

 private:
  tcp::Socket socket_;
  bool connected_ = false;
};

// A hello as a rank 0 would send it to rank 1.
std::string hello(const std::string& key, std::int32_t from = 0, std::int32_t to = 1,
                  std::uint32_t version = 1) {
  std::string text(16 + 32 + 64, '\0');
  const std::uint32_t magic = 0x314b534c;
  std::memcpy(text.data(), &magic, 4);
  std::memcpy(text.data() + 4, &version, 4);
  std::memcpy(text.data() + 8, &from, 4);
  std::memcpy(text.data() + 12, &to, 4);
  key.copy(text.data() + 16, 32);
  return text;
}

// Rank 1 waits for rank 0; meanwhile `intrude`; then rank 0 comes. Both must be connected.
void meets_in_spite_of(const std::function<void(const TcpFabric&)>& intrude) {
  TcpFabric zero, one;
  const std::vector<std::string> address = {on_loopback(zero), on_loopback(one)};
  std::unique_ptr<Transport> at_zero, at_one;
  std::jthread waiting([&] {
    at_one = std::move(one.connect({1}, {{1, 0}}, address, kTestKey, 30s)[0]);
  });
  intrude(one);
  at_zero = std::move(zero.connect({0}, {{0, 1}}, address, kTestKey, 30s)[0]);
  waiting.join();
  std::byte sent{42}, got{};
  at_zero->post_send(1, 3, &sent, 1);
  wait_for(*at_one, at_one->post_receive(0, 3, &got, 1));
  EXPECT_EQ(got, sent);
}

TEST(TcpMeeting, AWrongKeyIsClosedWithoutAWordAndTheJobGoesOn) {
  meets_in_spite_of([](const TcpFabric& fabric) {
    for (std::size_t wrong : {std::size_t(0), std::size_t(31)}) {
      std::string key = kTestKey;
      key[wrong] ^= 1;
      const Stranger stranger(fabric);
      stranger.say(hello(key));
      EXPECT_TRUE(stranger.closed_without_a_word());
    }
  });
}

TEST(TcpMeeting, ARankThatIsNotExpectedIsClosedInSpiteOfTheRightKey) {
  meets_in_spite_of([](const TcpFabric& fabric) {
    const std::string hellos[] = {hello(kTestKey, 2, 1), hello(kTestKey, 0, 0),
                                  hello(kTestKey, 1, 0), hello(kTestKey, -1, 1),
                                  hello(kTestKey, 0, 1, 2)};
    for (const std::string& text : hellos) {
      const Stranger stranger(fabric);
      stranger.say(text);
      EXPECT_TRUE(stranger.closed_without_a_word());
    }
  });
}

TEST(TcpMeeting, GarbageIsClosed) {
  meets_in_spite_of([](const TcpFabric& fabric) {
    const Stranger browser(fabric), noise(fabric);
    browser.say("GET / HTTP/1.1\r\nHost: h\r\n" + std::string(200, 'x') + "\r\n\r\n");
    noise.say(std::string(100'000, '\xff'));
    EXPECT_TRUE(browser.closed_without_a_word());
    EXPECT_TRUE(noise.closed_without_a_word());
  });
}

TEST(TcpMeeting, SilentAndHalfOpenClientsAreDroppedAndKeepNobodyWaiting) {
  std::vector<std::unique_ptr<Stranger>> strangers;
  meets_in_spite_of([&](const TcpFabric& fabric) {
    for (int i = 0; i < 100; ++i) {
      strangers.push_back(std::make_unique<Stranger>(fabric));
      if (i % 2 == 0) strangers.back()->say(hello(kTestKey).substr(0, std::size_t(i)));
    }
  });
  for (const auto& stranger : strangers) EXPECT_TRUE(stranger->closed_without_a_word());
}

TEST(TcpMeeting, ASilentClientIsDroppedWhileOthersAreStillAwaited) {
  meets_in_spite_of([](const TcpFabric& fabric) {
    const Stranger silent(fabric);
    EXPECT_TRUE(silent.closed_without_a_word());  // before rank 0 has come
  });
}

// An attempt with the right key that is given up before it is confirmed must not be taken for the
// connection.
TEST(TcpMeeting, AnAttemptThatIsGivenUpIsNotUsed) {
  meets_in_spite_of([](const TcpFabric& fabric) {
    for (int i = 0; i < 5; ++i) {
      const Stranger twin(fabric);
      twin.say(hello(kTestKey));
    }
  });
}

TEST(TcpMeeting, AfterTheMeetingNothingListens) {
  TcpFabric zero, one;
  const std::vector<std::string> address = {on_loopback(zero), on_loopback(one)};
  std::jthread other([&] { one.connect({1}, {{1, 0}}, address, kTestKey, 30s); });
  zero.connect({0}, {{0, 1}}, address, kTestKey, 30s);
  other.join();
  EXPECT_FALSE(Stranger(zero).connected());
  EXPECT_FALSE(Stranger(one).connected());
  EXPECT_EQ(error_of([&] { zero.connect({0}, {}, address, kTestKey, 1s); }).code(), Code::kInvalid);
}

TEST(TcpMeeting, WhoDoesNotComeIsNamed) {
  TcpFabric one, absent;
  const std::string silent = on_loopback(absent);  // listens, but nobody answers
  const Error error = error_of([&] {
    one.connect({1}, {{1, 0}, {1, 2}, {1, 3}}, {silent, on_loopback(one), silent, "127.0.0.1:1"},
                kTestKey, 300ms);
  });
  EXPECT_EQ(error.code(), Code::kTimeout);
  EXPECT_THAT(
      error.what(),
      AllOf(HasSubstr("rank 1 with rank 0 (it did not call)"), HasSubstr("rank 1 with rank 2 ("),
            HasSubstr("rank 1 with rank 3 (127.0.0.1:1: Connection refused)")));
}

TEST(TcpMeeting, RanksWithAnotherKeyDoNotMeet) {
  TcpFabric zero, one;
  const std::vector<std::string> address = {on_loopback(zero), on_loopback(one)};
  std::jthread other([&] {
    EXPECT_EQ(error_of([&] {
                one.connect({1}, {{1, 0}}, address, std::string(32, 'x'), 500ms);
              }).code(),
              Code::kTimeout);
  });
  const Error error = error_of([&] { zero.connect({0}, {{0, 1}}, address, kTestKey, 500ms); });
  EXPECT_EQ(error.code(), Code::kTimeout);
  EXPECT_THAT(error.what(), HasSubstr("rank 0 with rank 1"));
}

TEST(TcpMeeting, AnAddressThatLeadsNowhereIsPassedOver) {
  TcpFabric zero, one;
  const std::string port = on_loopback(one).substr(9);
  // 127.0.0.9 is refused unless something listens on all addresses, as `one` does: so a closed port
  // of another kind, an unroutable address, stands first.
  const std::vector<std::string> address = {on_loopback(zero), "240.0.0.1,::1,127.0.0.1" + port};
  std::unique_ptr<Transport> at_one;
  std::jthread other([&] {
    at_one = std::move(one.connect({1}, {{1, 0}}, address, kTestKey, 30s)[0]);
  });
  EXPECT_EQ(zero.connect({0}, {{0, 1}}, address, kTestKey, 30s).size(), 1u);
}

TEST(TcpMeeting, SeveralRanksOfOneProcessAndPairsWithinIt) {
  TcpFabric here, there;
  const std::vector<std::string> address = {on_loopback(here), on_loopback(here),
                                            on_loopback(there), on_loopback(there)};
  std::vector<std::unique_ptr<Transport>> low, high;
  std::jthread other([&] {
    high = there.connect({2, 3}, {{2, 0}, {3, 1}, {2, 1}, {2, 3}, {3, 2}}, address, kTestKey, 30s);
  });
  low = here.connect({0, 1}, {{0, 2}, {1, 3}, {1, 2}}, address, kTestKey, 30s);
  other.join();
  ASSERT_EQ(low.size(), 2u);
  ASSERT_EQ(high.size(), 2u);
  const auto exchange = [](Transport& from, int to_rank, Transport& to, int from_rank) {
    std::byte sent{std::byte(to_rank)}, got{std::byte(99)};
    from.post_send(to_rank, 1, &sent, 1);
    wait_for(to, to.post_receive(from_rank, 1, &got, 1));
    EXPECT_EQ(got, sent);
  };
  exchange(*low[0], 2, *high[0], 0);
  exchange(*low[1], 3, *high[1], 1);
  exchange(*low[1], 2, *high[0], 1);
  exchange(*high[0], 3, *high[1], 2);
  exchange(*high[1], 2, *high[0], 3);
}

TEST(TcpMeeting, OneThatComesMuchLaterIsWaitedFor) {
  TcpFabric zero, one;
  const std::vector<std::string> address = {on_loopback(zero), on_loopback(one)};
  std::jthread late([&] {
    std::this_thread::sleep_for(700ms);
    EXPECT_EQ(one.connect({1}, {{1, 0}}, address, kTestKey, 30s).size(), 1u);
  });
  EXPECT_EQ(zero.connect({0}, {{0, 1}}, address, kTestKey, 30s).size(), 1u);
}

// Who knows that somebody will not come need not wait for the deadline.
TEST(TcpMeeting, WhatIsKnownMeanwhileEndsItAtOnce) {
  TcpFabric zero, one;
  const std::vector<std::string> address = {on_loopback(zero), on_loopback(one)};
  std::atomic<bool> dead{false};
  std::jthread watch([&] {
    std::this_thread::sleep_for(200ms);
    dead = true;
  });
  const auto begin = engine::Clock::now();
  for (const bool calls : {true, false}) {  // the lower rank connects, the higher accepts
    const int me = calls ? 0 : 1;
    const Error error = error_of([&] {
      (calls ? zero : one).connect({me}, {{me, 1 - me}}, address, kTestKey, 60s, [&] {
        if (dead) engine::fail(Code::kPeerLost, "rank {} (process 4711) died", 1 - me);
      });
    });
    EXPECT_EQ(error.code(), Code::kPeerLost);
    EXPECT_EQ(error.what(), fmt::format("rank {} (process 4711) died", 1 - me));
  }
  EXPECT_LT(engine::Clock::now() - begin, 30s);
}

TEST(TcpMeeting, ABadInvitationIsRefused) {
  const auto refused = [](const std::vector<std::pair<int, int>>& pairs, const std::string& peer,
                          const std::string& key) {
    TcpFabric fabric;
    const Error error = error_of([&] {
      fabric.connect({0}, pairs, {on_loopback(fabric), peer}, key, 1s);
    });
    EXPECT_EQ(error.code(), Code::kInvalid) << error.what();
  };
  refused({{0, 1}}, "127.0.0.1:99", "short key");
  refused({{0, 2}}, "127.0.0.1:99", kTestKey);
  refused({{0, 0}}, "127.0.0.1:99", kTestKey);
  refused({{1, 0}}, "127.0.0.1:99", kTestKey);
  for (const char* address :
       {"", "127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:0", "127.0.0.1:65536", "h1:80",
        "127.0.0.1,:80", "127.0.0.1:80 ", "127.0.0.1:-5"}) {
    refused({{0, 1}}, address, kTestKey);
  }
}

TEST(TcpAddress, NamesEveryAddressButLoopback) {
  const TcpFabric fabric;
  const auto all = tcp::endpoints(fabric.address());
  const bool alone = all.size() == 1;
  ASSERT_FALSE(all.empty());
  EXPECT_TRUE(alone || fabric.address().find("127.0.0.1") == std::string::npos) << fabric.address();
}

}  // namespace tcp_meeting_test
}  // namespace lockstep::collectives
