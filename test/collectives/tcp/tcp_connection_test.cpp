// SPDX-License-Identifier: MIT
// A connection keeps messages that no receive waits for yet. The tests use two ends of a local
// stream and one thread.
#include "collectives/tcp/connection.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <span>
#include <thread>

#include "collectives/tcp/rank_transport.h"
#include "engine/base/error_bytes.h"
#include "engine/base/random.h"
#include "test/support/events.h"

namespace lockstep::collectives::tcp {
namespace tcp_connection_test {

using engine::Code;
using engine::Error;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kLimit = 100'000;

struct Pair {
  Pair() {
    int files[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, files), 0);
    left = std::make_unique<Connection>(Socket(files[0]), 1, "h1", kLimit);
    right = std::make_unique<Connection>(Socket(files[1]), 0, "h0", kLimit);
  }
  // Moves both ends until nothing moves any more.
  void settle() {
    for (bool moved = true; moved;) {
      moved = left->progress(true, true, sent);
      moved |= right->progress(true, true, got);
    }
  }
  std::unique_ptr<Connection> left, right;  // left sends
  std::vector<int> sent, got;
};

Bytes filled(std::size_t bytes, int value) {
  return Bytes(bytes, std::byte(value));
}

// The second message leaves its sender only as far as the stream itself holds it. Nothing behind it
// arrives, not even a message that a receive waits for.
TEST(TcpConnection, KeepsNoMoreThanItsLimitOfWhatNobodyWaitsFor) {
  Pair pair;
  const Bytes one = filled(kLimit - 10, 1), two = filled(3'000'000, 2), three = filled(5, 3);
  Bytes got_one(one.size()), got_two(two.size()), got_three(three.size());
  pair.left->post_send(1, 1, one.data(), one.size(), pair.sent);
  pair.left->post_send(2, 2, two.data(), two.size(), pair.sent);
  pair.left->post_send(3, 3, three.data(), three.size(), pair.sent);
  pair.right->post_receive(3, 3, got_three.data(), got_three.size(), pair.got);
  pair.settle();
  EXPECT_THAT(pair.sent, ElementsAre(1));
  EXPECT_THAT(pair.got, IsEmpty());
  EXPECT_EQ(pair.right->events() & 1, 0);  // asks for no more
  pair.right->post_receive(2, 2, got_two.data(), got_two.size(), pair.got);
  pair.settle();
  EXPECT_THAT(pair.got, ElementsAre(2, 3));
  pair.right->post_receive(1, 1, got_one.data(), got_one.size(), pair.got);
  EXPECT_THAT(pair.got, ElementsAre(2, 3, 1));
  EXPECT_TRUE(got_one == one && got_two == two && got_three == three);
}

// Holds a loopback connection. It can wake by the amount of data, which a local stream cannot.
struct Stream {
  Stream() {
    const Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const to = reinterpret_cast<sockaddr*>(&address);
    socklen_t length = sizeof address;
    EXPECT_EQ(bind(listener.file(), to, length), 0);
    EXPECT_EQ(listen(listener.file(), 1), 0);
    EXPECT_EQ(getsockname(listener.file(), to, &length), 0);
    far = Socket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(far.file(), to, length), 0);
    const int file = accept4(listener.file(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    near = std::make_unique<Connection>(Socket(file), 1, "h1");
  }
  void send(const void* data, std::size_t bytes) const {
    EXPECT_EQ(::send(far.file(), data, bytes, MSG_NOSIGNAL), ssize_t(bytes));
  }
  // Returns whether a sleeper would be woken within so many milliseconds.
  bool wakes(int milliseconds) const {
    pollfd polled{.fd = near->file(), .events = near->events(), .revents = 0};
    return poll(&polled, 1, milliseconds) == 1;
  }
  Socket far{-1};
  std::unique_ptr<Connection> near;
};

constexpr int kSoon = 10'000, kNever = 100;

// A long message does not wake a sleeper for each packet, but for its rest, for much of it, and for
// its end.
TEST(TcpConnection, PartsOfAMessageWakeNobodyUntilTheyAreWorthIt) {
  for (const bool ends : {false, true}) {
    SCOPED_TRACE(ends ? "the peer ends" : "the rest comes");
    const Stream stream;
    const Bytes data = filled(9'000'000, 7);
    Bytes got(data.size());
    std::vector<int> through;
    stream.near->post_receive(1, 1, got.data(), got.size(), through);
    const FrameHeader header{.magic = 0x4d4b534c, .tag = 1, .bytes = data.size()};
    stream.send(&header, sizeof header);
    EXPECT_TRUE(stream.wakes(kSoon));
    while (stream.near->progress(true, true, through)) continue;
    stream.send(data.data(), 300'000);
    EXPECT_FALSE(stream.wakes(kNever));
    if (ends) {
      shutdown(stream.far.file(), SHUT_WR);
      EXPECT_TRUE(stream.wakes(kSoon));
      continue;
    }
    std::thread sender([&] { stream.send(data.data() + 300'000, data.size() - 300'001); });
    for (int times = 0; times < 20 && stream.wakes(kNever); ++times) {
      while (stream.near->progress(true, true, through)) continue;
    }
    sender.join();
    while (stream.near->progress(true, true, through)) continue;
    EXPECT_THAT(through, IsEmpty());
    stream.send(&data.back(), 1);
    EXPECT_TRUE(stream.wakes(kSoon));
    while (stream.near->progress(true, true, through)) continue;
    EXPECT_THAT(through, ElementsAre(1));
    EXPECT_TRUE(got == data);
    stream.send(&header, sizeof header);  // the next message wakes at once
    EXPECT_TRUE(stream.wakes(kSoon));
  }
}

// The second message does not fit beside the first. When the first is taken, the second is kept.
// The third, which a receive waits for, then gets past it.
TEST(TcpConnection, RoomComesBackWhenAKeptMessageIsTaken) {
  Pair pair;
  const Bytes big = filled(60'000, 4);
  Bytes got(big.size());
  for (int i = 0; i < 3; ++i) pair.left->post_send(i, i, big.data(), big.size(), pair.sent);
  pair.settle();
  pair.right->post_receive(2, 2, got.data(), got.size(), pair.got);
  pair.settle();
  EXPECT_THAT(pair.got, IsEmpty());
  for (const int i : {0, 1}) {
    Bytes taken(big.size());
    pair.right->post_receive(i, i, taken.data(), taken.size(), pair.got);
    EXPECT_TRUE(taken == big);
    pair.settle();
  }
  EXPECT_THAT(pair.got, ElementsAre(0, 2, 1));
  EXPECT_TRUE(got == big);
}

// The same holds if the first message is still arriving when its receive takes it over.
TEST(TcpConnection, RoomComesBackWhenAHalfKeptMessageIsTakenOver) {
  int files[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, files), 0);
  const Socket other(files[0]);
  Connection connection(Socket(files[1]), 4, "h4", kLimit);
  std::vector<int> through;
  const auto say = [&](const void* data, std::size_t bytes) {
    ASSERT_EQ(send(other.file(), data, bytes, 0), ssize_t(bytes));
    while (connection.progress(true, true, through)) continue;
  };
  const Bytes data = filled(80'000, 6);
  Bytes first(data.size()), second(data.size());
  for (const int tag : {1, 2, 3}) {
    const std::size_t bytes = tag == 3 ? 0 : data.size();
    const FrameHeader header{.magic = 0x4d4b534c, .tag = std::uint32_t(tag), .bytes = bytes};
    say(&header, sizeof header);
    if (tag == 1) {
      say(data.data(), 1000);
      connection.post_receive(1, 1, first.data(), first.size(), through);
      EXPECT_THAT(through, IsEmpty());
      say(data.data() + 1000, bytes - 1000);
      EXPECT_THAT(through, ElementsAre(1));
    } else if (tag == 2) {
      say(data.data(), bytes);
    }
  }
  connection.post_receive(3, 3, nullptr, 0, through);  // behind the second, which is kept
  connection.post_receive(2, 2, second.data(), second.size(), through);
  EXPECT_THAT(through, ElementsAre(1, 3, 2));
  EXPECT_TRUE(first == data && second == data);
}

TEST(TcpConnection, AMessageOfTheWholeLimitAndEmptyOnesBehindItAreKept) {
  Pair pair;
  const Bytes all = filled(kLimit, 5);
  Bytes got(kLimit);
  pair.left->post_send(0, 7, all.data(), all.size(), pair.sent);
  pair.left->post_send(1, 7, nullptr, 0, pair.sent);
  pair.left->post_send(2, 8, nullptr, 0, pair.sent);
  pair.settle();
  EXPECT_EQ(pair.sent.size(), 3u);
  pair.right->post_receive(2, 8, nullptr, 0, pair.got);
  pair.right->post_receive(0, 7, got.data(), got.size(), pair.got);
  pair.right->post_receive(1, 7, nullptr, 0, pair.got);
  EXPECT_THAT(pair.got, ElementsAre(2, 0, 1));
  EXPECT_TRUE(got == all);
}

// Messages of random sizes around the limit, with random tags and random times of receives, always
// arrive. Those of one tag arrive in the order of their posts.
TEST(TcpConnection, RandomOrdersGetThroughWithinTheLimit) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Pair pair;
    engine::Random random(seed);
    constexpr int kMessages = 40, kTags = 3;
    std::vector<Bytes> data, got;
    std::vector<int> tag;
    for (int i = 0; i < kMessages; ++i) {
      data.push_back(
          filled(random.below(4) == 0 ? random.below(2 * kLimit) : random.below(2000), i));
      got.emplace_back(data.back().size());
      tag.push_back(int(random.below(kTags)));
      pair.left->post_send(i, tag.back(), data.back().data(), data.back().size(), pair.sent);
    }
    std::vector<std::deque<int>> waiting(kTags);
    for (int i = 0; i < kMessages; ++i) waiting[std::size_t(tag[std::size_t(i)])].push_back(i);
    for (int left = kMessages; left > 0;) {
      auto& queue = waiting[random.below(kTags)];
      if (queue.empty()) continue;
      const auto i = std::size_t(queue.front());
      queue.pop_front();
      --left;
      pair.right->post_receive(int(i), tag[i], got[i].data(), got[i].size(), pair.got);
      if (random.below(2) == 0) pair.settle();
    }
    pair.settle();
    ASSERT_EQ(pair.got.size(), std::size_t(kMessages)) << seed;
    ASSERT_TRUE(got == data) << seed;
    for (int t = 0; t < kTags; ++t) {
      std::vector<int> order;
      for (const int i : pair.got) {
        if (tag[std::size_t(i)] == t) order.push_back(i);
      }
      EXPECT_TRUE(std::is_sorted(order.begin(), order.end())) << seed;
    }
  }
}

TEST(TcpConnection, WhatIsNoMessageIsAnErrorThatStays) {
  int files[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, files), 0);
  const Socket other(files[0]);
  Connection connection(Socket(files[1]), 4, "h4", kLimit);
  const std::string noise = "this is no message at all";
  ASSERT_EQ(send(other.file(), noise.data(), noise.size(), 0), ssize_t(noise.size()));
  std::vector<int> through;
  for (int i = 0; i < 2; ++i) {
    try {
      connection.progress(true, true, through);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kIo);
      EXPECT_THAT(error.what(), HasSubstr("rank 4 on host h4 sent what is no message"));
    }
  }
}

// A length is not trusted. No memory is allocated for it before a receive is posted, which then
// finds that it is wrong.
TEST(TcpConnection, AnAbsurdLengthTakesNoMemory) {
  int files[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, files), 0);
  const Socket other(files[0]);
  Connection connection(Socket(files[1]), 4, "h4", kLimit);
  const FrameHeader header{.magic = 0x4d4b534c, .tag = 1, .bytes = ~std::uint64_t(0)};
  ASSERT_EQ(send(other.file(), &header, sizeof header, 0), ssize_t(sizeof header));
  std::vector<int> through;
  EXPECT_TRUE(connection.progress(true, true, through));
  std::byte one{};
  try {
    connection.post_receive(0, 1, &one, 1, through);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalid);
    EXPECT_THAT(error.what(), HasSubstr("18446744073709551615 bytes, 1 were expected"));
  }
}

// A reason is no message while its text is still arriving, whatever its tag. A receive that is
// posted with that tag waits, and throws the reason.
TEST(TcpConnection, AHalfReadReasonIsNotTakenForAMessage) {
  constexpr int kTag = 6;
  std::array<std::byte, 1024> why;
  const std::size_t bytes =
      engine::write_error({Code::kPeerLost, "rank 4 (pid 4711) died", {4}}, why);
  for (const std::size_t posted : {std::size_t(4096), bytes}) {
    int files[2] = {-1, -1};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, files), 0);
    const Socket other(files[0]);
    Connection connection(Socket(files[1]), 4, "h4", kLimit);
    std::vector<int> through;
    const FrameHeader header{.magic = 0x524b534c, .tag = kTag, .bytes = bytes};
    ASSERT_EQ(send(other.file(), &header, sizeof header, 0), ssize_t(sizeof header));
    EXPECT_TRUE(connection.progress(true, true, through));
    Bytes data(posted);
    connection.post_receive(1, kTag, data.data(), data.size(), through);
    ASSERT_EQ(send(other.file(), why.data(), bytes, 0), ssize_t(bytes));
    try {
      connection.progress(true, true, through);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kPeerLost);
      EXPECT_STREQ(error.what(), "rank 4 (pid 4711) died");
      EXPECT_THAT(error.ranks(), ElementsAre(4));
    }
    EXPECT_THAT(through, IsEmpty());
  }
}

TEST(TcpConnection, AReasonThatIsNoErrorIsNoMessage) {
  int files[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, files), 0);
  const Socket other(files[0]);
  Connection connection(Socket(files[1]), 4, "h4", kLimit);
  const Bytes wrong(16, std::byte{0xff});
  const FrameHeader header{.magic = 0x524b534c, .tag = 0, .bytes = wrong.size()};
  ASSERT_EQ(send(other.file(), &header, sizeof header, 0), ssize_t(sizeof header));
  ASSERT_EQ(send(other.file(), wrong.data(), wrong.size(), 0), ssize_t(wrong.size()));
  std::vector<int> through;
  try {
    connection.progress(true, true, through);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kIo);
    EXPECT_THAT(error.what(), HasSubstr("rank 4 on host h4 sent what is no message"));
  }
}

// A transport would wait for each of many peers that do not read; together they cost no more than
// one. The bound is far above half a second, and far below half a second per peer.
TEST(TcpConnection, TellingManyPeersThatDoNotReadTakesNoLongerThanOne) {
  constexpr int kPeers = 20;
  const Bytes data = filled(3'000'000, 1);
  std::vector<Met> met;
  std::vector<Socket> silent;
  for (int peer = 1; peer <= kPeers; ++peer) {
    int files[2] = {-1, -1};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, files), 0);
    met.push_back({.here = 0, .there = peer, .socket = Socket(files[0]), .host = "h"});
    silent.emplace_back(files[1]);
  }
  Connection reader(std::move(silent.back()), 0, "h0");
  RankTransport transport(0, std::move(met));
  for (int peer = 1; peer <= kPeers; ++peer) transport.post_send(peer, 1, data.data(), data.size());
  const auto begin = engine::Clock::now();
  std::jthread abort([&] {
    transport.abort({Code::kAborted, "rank 0 gives up"});
    EXPECT_LT(engine::Clock::now() - begin, std::chrono::seconds(4));
  });
  // The last peer reads, and still receives the rest of its message and the reason.
  Bytes got(data.size());
  std::vector<int> through;
  reader.post_receive(7, 1, got.data(), got.size(), through);
  try {
    while (engine::Clock::now() - begin < std::chrono::seconds(20))
      reader.progress(true, true, through);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kAborted);
    EXPECT_STREQ(error.what(), "rank 0 gives up");
  }
  EXPECT_THAT(through, ElementsAre(7));
  EXPECT_TRUE(got == data);
}

// Returns two ends of a TCP connection over loopback whose kernel holds few unread bytes.
std::pair<Socket, Socket> narrow_sockets() {
  const std::vector<Socket> listeners = listen_on({"127.0.0.1"}, {});
  const auto narrow = [](const Socket& socket, int what) {
    const int bytes = 4096;
    EXPECT_EQ(setsockopt(socket.file(), SOL_SOCKET, what, &bytes, sizeof bytes), 0);
  };
  narrow(listeners[0], SO_RCVBUF);
  const Endpoint to = endpoints(fmt::format("127.0.0.1:{}", port_of(listeners[0])))[0];
  Socket from(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(from.file(), reinterpret_cast<const sockaddr*>(&to.address), to.length), 0);
  EXPECT_EQ(fcntl(from.file(), F_SETFL, O_NONBLOCK), 0);
  pollfd polled{.fd = listeners[0].file(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&polled, 1, 10'000), 1);
  Socket there(accept4(listeners[0].file(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  tune(from), tune(there);
  return {std::move(from), std::move(there)};
}

void expect_message_and_reason(Connection& reader, std::size_t bytes) {
  Bytes got(bytes);
  std::vector<int> through;
  const auto begin = engine::Clock::now();
  try {
    reader.post_receive(7, 1, got.data(), got.size(), through);
    while (engine::Clock::now() - begin < std::chrono::seconds(20))
      reader.progress(true, true, through);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rank 3 (pid 4711) died");
    EXPECT_THAT(error.ranks(), ElementsAre(3));
  }
  EXPECT_THAT(through, ElementsAre(7));
}

// On a slow wire the socket has taken everything while the peer has received little of it. That
// peer has sent bytes that are never read, and goes on sending.
TEST(TcpConnection, APeerThatReadsLateAndStillSendsHearsTheReason) {
  auto [mine, theirs] = narrow_sockets();
  const Bytes data = filled(300'000, 1), unread = filled(20'000, 2);
  Connection reader(std::move(theirs), 0, "h0");
  std::vector<int> sent;
  reader.post_send(1, 2, unread.data(), unread.size(), sent);
  std::vector<Met> met;
  met.push_back({.here = 0, .there = 1, .socket = std::move(mine), .host = "h"});
  auto transport = std::make_unique<RankTransport>(0, std::move(met));
  transport->post_send(1, 1, data.data(), data.size());
  std::jthread abort([&] {
    transport->abort({Code::kPeerLost, "rank 3 (pid 4711) died", {3}});
    transport.reset();
  });
  EXPECT_TRUE(test::await(test::others_sleep));
  reader.post_send(2, 2, unread.data(), unread.size(), sent);
  expect_message_and_reason(reader, data.size());
}

// The same holds if the time is over before the peer has read anything: the kernel goes on.
TEST(TcpConnection, AnEndWithUnreadBytesTakesNothingBackOfWhatWasSent) {
  auto [mine, theirs] = narrow_sockets();
  const Bytes data = filled(100'000, 1), unread = filled(2'000, 2);
  Connection reader(std::move(theirs), 0, "h0");
  std::vector<int> sent;
  {
    std::array<std::byte, 1024> memory;
    const std::size_t bytes =
        engine::write_error({Code::kPeerLost, "rank 3 (pid 4711) died", {3}}, memory);
    Connection connection(std::move(mine), 1, "h1");
    connection.post_send(1, 1, data.data(), data.size(), sent);
    connection.begin_abort(std::span(memory).first(bytes));
    EXPECT_TRUE(connection.tells());  // in the socket, not yet received
    EXPECT_EQ(connection.events() & POLLOUT, 0);
    connection.shut();
    reader.post_send(1, 2, unread.data(), unread.size(), sent);
  }
  expect_message_and_reason(reader, data.size());
}

}  // namespace tcp_connection_test
}  // namespace lockstep::collectives::tcp
