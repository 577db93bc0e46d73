// SPDX-License-Identifier: MIT
// Ranks connect with each other, and strangers are kept out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "collectives/tcp/rendezvous.h"
#include "collectives/tcp/socket.h"
#include "engine/base/error.h"
#include "test/collectives/tcp/handshake_peer.h"
#include "test/collectives/tcp/tcp_ranks.h"
#include "test/support/events.h"

namespace lockstep::collectives {
namespace tcp_meeting_test {

using namespace std::chrono_literals;
using engine::Code;
using engine::Error;
using tcp::Handshake;
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

// Connects to a fabric on loopback without belonging to the job.
class Stranger {
 public:
  explicit Stranger(const TcpFabric& fabric) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const tcp::Endpoint to = tcp::endpoints(on_loopback(fabric))[0];
    connected_ =
        ::connect(socket_.file(), reinterpret_cast<const sockaddr*>(&to.address), to.length) == 0;
  }
  bool connected() const { return connected_; }
  void send(const std::string& text) const { tcp::send_text(socket_, text); }
  std::string read(std::size_t bytes) const { return tcp::read_text(socket_, bytes); }
  // Returns true if the other side closes without sending anything.
  bool closed_without_a_word() const { return read(1).empty() && !tcp::is_open(socket_); }
  // Returns what a dialer of a job sends first, read from another connection.
  std::string hello(const JobKey& key = kTestKey, int from = 0, int to = 1) const {
    auto [ours, theirs] = tcp::socket_pair();
    const auto dialer = Handshake::dial(std::move(ours), key, from, to, engine::Clock::now() + 30s);
    Handshake::Hello hello;
    const std::string sent = tcp::read_text(theirs, sizeof hello);
    sent.copy(reinterpret_cast<char*>(&hello), sizeof hello);
    tcp::remote_endpoint(socket_).copy(hello.dialed.data(), hello.dialed.size() - 1);
    return tcp::text_of(hello);
  }
  tcp::Socket take() { return std::move(socket_); }

 private:
  tcp::Socket socket_;
  bool connected_ = false;
};

constexpr std::size_t kChallenge = sizeof(Handshake::Challenge), kProof = Handshake::kDigestBytes;

// Lets rank 1 wait for rank 0, calls `intrude`, and lets rank 0 connect to `at`. Expects that both
// are connected.
void expect_meeting(TcpFabric& zero, TcpFabric& one, const std::string& at,
                    const std::function<void()>& intrude) {
  const std::vector<std::string> address = {on_loopback(zero), at};
  std::unique_ptr<Transport> at_zero, at_one;
  std::jthread waiting([&] {
    at_one = std::move(one.connect({1}, {{1, 0}}, address, kTestKey, 30s)[0]);
  });
  intrude();
  at_zero = std::move(zero.connect({0}, {{0, 1}}, address, kTestKey, 30s)[0]);
  waiting.join();
  std::byte sent{42}, got{};
  at_zero->post_send(1, 3, &sent, 1);
  wait_for(*at_one, at_one->post_receive(0, 3, &got, 1));
  EXPECT_EQ(got, sent);
}

void meets_in_spite_of(const std::function<void(const TcpFabric&)>& intrude) {
  TcpFabric zero(kLoopback), one(kLoopback);
  expect_meeting(zero, one, on_loopback(one), [&] { intrude(one); });
}

TEST(TcpMeeting, AStrangerGetsNoProofAndTheJobGoesOn) {
  meets_in_spite_of([](const TcpFabric& fabric) {
    for (const std::size_t wrong : {std::size_t(0), std::size_t(31)}) {
      JobKey key = kTestKey;
      key.secret[wrong] ^= 1;
      const Stranger stranger(fabric);
      const std::string hello = stranger.hello();
      stranger.send(hello);
      const std::string challenge = stranger.read(kChallenge);
      ASSERT_EQ(challenge.size(), kChallenge);
      EXPECT_EQ(challenge.find(kTestKey.secret.substr(0, 8)), std::string::npos);
      stranger.send(tcp::proof(0, hello, challenge, key.secret));
      EXPECT_TRUE(stranger.closed_without_a_word());
    }
  });
}

TEST(TcpMeeting, ARankThatIsNotExpectedIsClosedInSpiteOfTheRightKey) {
  meets_in_spite_of([](const TcpFabric& fabric) {
    for (const auto& [from, to] : {std::pair(2, 1), {0, 0}, {1, 0}, {-1, 1}}) {
      const Stranger stranger(fabric);
      stranger.send(stranger.hello(kTestKey, from, to));
      EXPECT_TRUE(stranger.closed_without_a_word());
    }
  });
}

TEST(TcpMeeting, GarbageIsClosed) {
  meets_in_spite_of([](const TcpFabric& fabric) {
    const Stranger browser(fabric), noise(fabric);
    browser.send("GET / HTTP/1.1\r\nHost: h\r\n" + std::string(200, 'x') + "\r\n\r\n");
    noise.send(std::string(100'000, '\xff'));
    EXPECT_TRUE(browser.closed_without_a_word());
    EXPECT_TRUE(noise.closed_without_a_word());
  });
}

TEST(TcpMeeting, SilentAndHalfOpenClientsAreDroppedAndKeepNobodyWaiting) {
  std::vector<std::unique_ptr<Stranger>> strangers;
  meets_in_spite_of([&](const TcpFabric& fabric) {
    for (int i = 0; i < 100; ++i) {
      strangers.push_back(std::make_unique<Stranger>(fabric));
      if (i % 2 == 0) strangers.back()->send(strangers.back()->hello().substr(0, std::size_t(i)));
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

// An attempt with the right key must not be taken for the connection if it is abandoned before it
// is confirmed.
TEST(TcpMeeting, AnAttemptThatIsGivenUpIsNotUsed) {
  meets_in_spite_of([](const TcpFabric& fabric) {
    for (int i = 0; i < 5; ++i) {
      const Stranger twin(fabric);
      const std::string hello = twin.hello();
      twin.send(hello);
      const std::string challenge = twin.read(kChallenge);
      twin.send(tcp::proof(0, hello, challenge, kTestKey.secret));
      EXPECT_EQ(twin.read(kProof), tcp::proof(1, hello, challenge, kTestKey.secret));
    }
  });
}

// Listens at an address of a rank, replies with `answer`, and keeps what it got.
class FalseRank {
 public:
  using Answer = std::function<void(const tcp::Socket&, std::string& got)>;

  FalseRank(const std::string& address, int port, Answer answer)
      : listeners_(tcp::listen_on({address}, {port, port})), answer_(std::move(answer)) {}
  ~FalseRank() { stop(); }
  int port() const { return tcp::port_of(listeners_[0]); }
  std::string stop() {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
    return got_;
  }

 private:
  void work() {
    while (!ended_) {
      pollfd polled{.fd = listeners_[0].file(), .events = POLLIN, .revents = 0};
      if (poll(&polled, 1, 5) <= 0) continue;
      const tcp::Socket socket(accept4(listeners_[0].file(), nullptr, nullptr, SOCK_NONBLOCK));
      answer_(socket, got_);
      got_ += tcp::received(socket);
    }
  }
  std::vector<tcp::Socket> listeners_;
  Answer answer_;
  std::string got_;
  std::atomic<bool> ended_{false};
  std::jthread thread_{[this] { work(); }};
};

void answer_without_the_key(const tcp::Socket& socket, std::string& got) {
  got += tcp::read_text(socket, sizeof(Handshake::Hello));
  tcp::send_text(socket, tcp::text_of(Handshake::Challenge{}));
  got += tcp::read_text(socket, kProof);
  tcp::send_text(socket, std::string(kProof, 'x'));
}

TEST(TcpMeeting, AStrangerThatListensLearnsNoKeyAndIsNamed) {
  TcpFabric zero(kLoopback);
  FalseRank stranger("127.0.0.2", 0, answer_without_the_key);
  const std::string at = fmt::format("127.0.0.2:{}", stranger.port());
  const Error error = error_of([&] {
    zero.connect({0}, {{0, 1}}, {on_loopback(zero), at}, kTestKey, 300ms);
  });
  EXPECT_EQ(error.code(), Code::kTimeout);
  EXPECT_THAT(error.what(), HasSubstr(fmt::format("rank 0 with rank 1 ({}: does not know the key "
                                                  "of the job)",
                                                  at)));
  const std::string got = stranger.stop();
  EXPECT_GE(got.size(), sizeof(Handshake::Hello) + kProof);
  EXPECT_EQ(got.find(kTestKey.secret.substr(0, 8)), std::string::npos);
}

// A stranger cannot open rank 1 with what it got from rank 0.
TEST(TcpMeeting, WhatAStrangerGotIsOfNoUseElsewhere) {
  std::string got;
  {
    TcpFabric zero(kLoopback);
    FalseRank stranger("127.0.0.2", 0, answer_without_the_key);
    error_of([&] {
      zero.connect({0}, {{0, 1}}, {on_loopback(zero), fmt::format("127.0.0.2:{}", stranger.port())},
                   kTestKey, 100ms);
    });
    got = stranger.stop();
  }
  meets_in_spite_of([&](const TcpFabric& one) {
    const Stranger replay(one), patched(one);
    replay.send(got);
    EXPECT_TRUE(replay.closed_without_a_word());
    Handshake::Hello hello;  // with the connection's real address
    got.copy(reinterpret_cast<char*>(&hello), sizeof hello);
    hello.dialed = {};
    on_loopback(one).copy(hello.dialed.data(), hello.dialed.size() - 1);
    patched.send(tcp::text_of(hello));
    EXPECT_EQ(patched.read(kChallenge).size(), kChallenge);
    patched.send(got.substr(sizeof hello, kProof));
    EXPECT_TRUE(patched.closed_without_a_word());
  });
}

// 127.0.0.2 is nearer than 127.0.0.1, which is this host's own. One stranger there has no key, and
// the other passes everything on to the rank.
TEST(TcpMeeting, RanksMeetBehindAStrangerAtTheFirstAddress) {
  for (const bool relays : {false, true}) {
    TcpFabric zero(kLoopback), one(kLoopback);
    const std::string port = on_loopback(one).substr(9);
    const auto relay = [&](const tcp::Socket& socket, std::string& got) {
      const Stranger further(one);
      got += tcp::read_text(socket, sizeof(Handshake::Hello));
      further.send(got);
      EXPECT_TRUE(further.closed_without_a_word());
    };
    FalseRank stranger("127.0.0.2", std::stoi(port.substr(1)),
                       relays ? FalseRank::Answer(relay) : answer_without_the_key);
    expect_meeting(zero, one, "127.0.0.2,127.0.0.1" + port, [] {});
    EXPECT_GE(stranger.stop().size(), sizeof(Handshake::Hello));
  }
}

TEST(TcpMeeting, AfterTheMeetingNothingListens) {
  TcpFabric zero(kLoopback), one(kLoopback);
  const std::vector<std::string> address = {on_loopback(zero), on_loopback(one)};
  std::jthread other([&] { one.connect({1}, {{1, 0}}, address, kTestKey, 30s); });
  zero.connect({0}, {{0, 1}}, address, kTestKey, 30s);
  other.join();
  EXPECT_FALSE(Stranger(zero).connected());
  EXPECT_FALSE(Stranger(one).connected());
  EXPECT_EQ(error_of([&] { zero.connect({0}, {}, address, kTestKey, 1s); }).code(), Code::kInvalid);
}

TEST(TcpMeeting, WhoDoesNotComeIsNamed) {
  TcpFabric one(kLoopback), absent(kLoopback);
  const std::string silent = on_loopback(absent);  // listens, but never answers
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

TEST(TcpMeeting, RanksWithAnotherKeyDoNotMeetAndBothSayWhy) {
  TcpFabric zero(kLoopback), one(kLoopback);
  const std::vector<std::string> address = {on_loopback(zero), on_loopback(one)};
  std::jthread other([&] {
    const Error error = error_of([&] {
      one.connect({1}, {{1, 0}}, address, {"test", std::string(32, 'x')}, 500ms);
    });
    EXPECT_EQ(error.code(), Code::kTimeout);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("it did not call"), HasSubstr("refused: "),
                                    HasSubstr("the last one from 127.0.0.1:"),
                                    HasSubstr("does not know the key of the job")));
  });
  const Error error = error_of([&] { zero.connect({0}, {{0, 1}}, address, kTestKey, 500ms); });
  EXPECT_EQ(error.code(), Code::kTimeout);
  EXPECT_THAT(error.what(), HasSubstr(fmt::format("rank 0 with rank 1 ({}: ", on_loopback(one))));
}

TEST(TcpMeeting, AnAddressThatLeadsNowhereIsPassedOver) {
  TcpFabric zero(kLoopback), one(kLoopback);
  const std::string port = on_loopback(one).substr(9);
  // Nothing listens at the first address, the second is unroutable, and the third is right.
  const std::vector<std::string> address = {on_loopback(zero),
                                            "127.0.0.9,240.0.0.1,127.0.0.1" + port};
  std::unique_ptr<Transport> at_one;
  std::jthread other([&] {
    at_one = std::move(one.connect({1}, {{1, 0}}, address, kTestKey, 30s)[0]);
  });
  EXPECT_EQ(zero.connect({0}, {{0, 1}}, address, kTestKey, 30s).size(), 1u);
}

TEST(TcpMeeting, SeveralRanksOfOneProcessAndPairsWithinIt) {
  TcpFabric here(kLoopback), there(kLoopback);
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
  TcpFabric zero(kLoopback), one(kLoopback);
  const std::vector<std::string> address = {on_loopback(zero), on_loopback(one)};
  std::jthread late([&] {
    std::this_thread::sleep_for(700ms);
    EXPECT_EQ(one.connect({1}, {{1, 0}}, address, kTestKey, 30s).size(), 1u);
  });
  EXPECT_EQ(zero.connect({0}, {{0, 1}}, address, kTestKey, 30s).size(), 1u);
}

// A process need not wait for the deadline if it knows that another one will not come.
TEST(TcpMeeting, WhatIsKnownMeanwhileEndsItAtOnce) {
  TcpFabric zero(kLoopback), one(kLoopback);
  const std::vector<std::string> address = {on_loopback(zero), on_loopback(one)};
  std::atomic<bool> dead{false};
  std::jthread watch([&] {
    EXPECT_TRUE(test::await(test::others_sleep));
    dead = true;
  });
  const auto begin = engine::Clock::now();
  for (const bool calls : {true, false}) {  // the lower rank connects, the higher accepts
    const int me = calls ? 0 : 1;
    const Error error = error_of([&] {
      (calls ? zero : one).connect({me}, {{me, 1 - me}}, address, kTestKey, 60s, [&] {
        if (dead) engine::fail(Code::kPeerLost, "rank {} (pid 4711) died", 1 - me);
      });
    });
    EXPECT_EQ(error.code(), Code::kPeerLost);
    EXPECT_EQ(error.what(), fmt::format("rank {} (pid 4711) died", 1 - me));
  }
  EXPECT_LT(engine::Clock::now() - begin, 30s);
}

TEST(TcpMeeting, ABadInvitationIsRefused) {
  const auto refused = [](const std::vector<std::pair<int, int>>& pairs, const std::string& peer,
                          const JobKey& key) {
    TcpFabric fabric(kLoopback);
    const Error error = error_of([&] {
      fabric.connect({0}, pairs, {on_loopback(fabric), peer}, key, 1s);
    });
    EXPECT_EQ(error.code(), Code::kInvalid) << error.what();
  };
  refused({{0, 1}}, "127.0.0.1:99", {"test", "short key"});
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
