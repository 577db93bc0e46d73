// SPDX-License-Identifier: MIT
// Calls without a network: the bytes of messages, calls within a process, and retries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <set>
#include <thread>

#include "engine/base/random.h"
#include "strategies/parameter_server/rpc/framing.h"
#include "strategies/parameter_server/rpc/in_process.h"
#include "strategies/parameter_server/rpc/retry.h"
#include "test/strategies/parameter_server/rpc/echo_service.h"
#include "test/strategies/parameter_server/rpc/faulty_connection.h"

namespace lockstep::test {
namespace rpc_test {

using namespace std::chrono_literals;
using engine::Clock;
using engine::Code;
using engine::Error;
using strategies::TimedWork;
using strategies::rpc::InProcess;
using strategies::rpc::Message;
using strategies::rpc::Reply;
using strategies::rpc::Retry;
using strategies::rpc::Slice;
using testing::ElementsAre;
using testing::HasSubstr;
using What = Fault::What;

constexpr auto kLong = std::chrono::milliseconds(60s);  // reached only by a defect

std::future<Reply> start(strategies::rpc::Connection& connection, std::string_view method,
                         Message request, Clock::duration within = kLong) {
  auto promise = std::make_shared<std::promise<Reply>>();
  connection.start(method, std::move(request), Clock::now() + within,
                   [promise](Reply reply) { promise->set_value(std::move(reply)); });
  return promise->get_future();
}

Slice slice_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size(), nullptr};
}

// Parses the bytes as if they arrived in slices of `piece` bytes.
Message parsed(const std::string& bytes, std::size_t piece) {
  const auto owner = std::make_shared<const std::string>(bytes);
  std::vector<Slice> slices;
  for (std::size_t i = 0; i < bytes.size(); i += piece) {
    slices.push_back({reinterpret_cast<const std::byte*>(owner->data()) + i,
                      std::min(piece, bytes.size() - i), owner});
    slices.push_back({});  // gRPC also has empty slices
  }
  return strategies::rpc::parse(slices);
}

// A head with a field of each wire type: a number of 10 bytes, 8 bytes, text, 4 bytes.
const std::string kHead = std::string("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11) +
                          std::string(
                              "\x11"
                              "12345678",
                              9) +
                          std::string(
                              "\x1a\x03"
                              "abc",
                              5) +
                          std::string(
                              "\x25"
                              "1234",
                              5);

TEST(Framing, WhatIsFramedIsReadAgainInPiecesOfAnySize) {
  for (const std::size_t bytes : {0, 1, 127, 128, 300, 16384})
    for (const std::size_t piece : {1, 2, 7, 20000}) {
      const Message sent = message_of(kHead, bytes);
      const Message came = parsed(framed_head(sent) + body_of(sent), piece);
      EXPECT_EQ(came.head, kHead);
      EXPECT_TRUE(body_of(came) == body_of(sent));
    }
}

TEST(Framing, BodiesAreNotCopiedAndStayInTheirPieces) {
  const Message sent = message_of(kHead, 100);
  const std::string bytes = framed_head(sent) + body_of(sent);
  const std::string_view first = std::string_view(bytes).substr(0, bytes.size() - 60);
  const std::string_view second = std::string_view(bytes).substr(bytes.size() - 60);
  const auto owner = std::make_shared<int>(0);
  const Message came = strategies::rpc::parse(
      {{reinterpret_cast<const std::byte*>(first.data()), first.size(), owner},
       {reinterpret_cast<const std::byte*>(second.data()), second.size(), owner}});
  ASSERT_EQ(came.body.size(), 2u);
  EXPECT_EQ(came.body[0].size, 40u);
  EXPECT_EQ(static_cast<const void*>(came.body[1].data), second.data());
  EXPECT_EQ(came.body[1].owner, owner);
}

TEST(Framing, TheBodyMayStandAnywhereAndTheLastOneCounts) {
  const std::string bytes = std::string(
                                "\x7a\x02"
                                "xy") +
                            kHead +
                            "\x7a\x03"
                            "abc" +
                            "\x08\x05";
  const Message came = parsed(bytes, 3);
  EXPECT_EQ(came.head, kHead + "\x08\x05");
  EXPECT_EQ(body_of(came), "abc");
}

TEST(Framing, WhatIsNoMessageIsRefused) {
  for (const std::string& bytes : {
           std::string("\x08"),      // a field without its number
           std::string("\x08\x80"),  // a number that does not end
           std::string("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),  // 11 bytes
           std::string("\x0a\x05"
                       "abc"),  // 3 of 5 bytes
           std::string("\x7a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
                       "abc"),  // 2^64 - 1 bytes
           std::string("\x11"
                       "1234567"),  // 7 of 8 bytes
           std::string("\x25"
                       "123"),                              // 3 of 4 bytes
           std::string("\x02\x00", 2),                      // field 0
           std::string("\x0b"),                             // groups are not supported
           std::string("\x0e"),                             // wire type 6 does not exist
           std::string("\x78\x01"),                         // a body of the wrong type
           std::string("\xfa\xff\xff\xff\xff\x01\x00", 7),  // the field number is too large
       }) {
    SCOPED_TRACE(testing::PrintToString(bytes));
    for (const std::size_t piece : {1, 100}) EXPECT_THROW(parsed(bytes, piece), Error);
  }
}

// A damaged message is refused, or what was parsed serializes to the same bytes in order.
TEST(Framing, TenThousandDamagedMessagesAreRefusedOrRead) {
  engine::Random random(engine::stream_key(1, "damaged messages"));
  const Message good = message_of(kHead, 40);
  std::size_t refused = 0;
  for (int i = 0; i < 10000; ++i) {
    std::string bytes = framed_head(good) + body_of(good);
    for (std::uint64_t flips = random.below(4) + 1; flips > 0; --flips)
      bytes[random.below(bytes.size())] = char(random.bits());
    if (random.below(4) == 0) bytes.resize(random.below(bytes.size()));
    try {
      const Message came = parsed(bytes, random.below(9) + 1);
      EXPECT_LE(came.head.size() + came.body_bytes(), bytes.size());
      const Message again = parsed(framed_head(came) + body_of(came), 5);
      EXPECT_EQ(again.head, came.head);
      EXPECT_TRUE(body_of(again) == body_of(came));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalid);
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_LT(refused, 9999u);
}

TEST(TimedWorkTest, WorkIsDoneInTheOrderOfItsTimes) {
  TimedWork work;
  std::vector<int> done;
  std::promise<void> last;
  const auto now = Clock::now();
  work.add(now + 30ms, [&] { done.push_back(3), last.set_value(); });
  work.add(now + 10ms, [&] { done.push_back(1); });
  const TimedWork::Ticket never = work.add(now + 15ms, [&] { done.push_back(7); });
  work.add(now + 20ms, [&] { done.push_back(2); });
  work.add([&] { done.push_back(0); });
  work.remove(never);
  last.get_future().get();
  EXPECT_THAT(done, ElementsAre(0, 1, 2, 3));
}

TEST(InProcessTest, WhatIsSentComesBackOnAnotherThread) {
  EchoService service;
  InProcess connection(service, "server 0");
  const Message sent = message_of(kHead, 1000, 1, 3);
  std::promise<std::thread::id> thread;
  std::string body;
  connection.start("Echo", sent, Clock::now() + kLong, [&](Reply reply) {
    body = body_of(reply.message);
    thread.set_value(std::this_thread::get_id());
  });
  EXPECT_NE(thread.get_future().get(), std::this_thread::get_id());
  EXPECT_EQ(body, body_of(sent));
  EXPECT_EQ(connection.address(), "server 0");
}

TEST(InProcessTest, BytesWithAnOwnerAreNotCopiedAndOthersAreKept) {
  EchoService service;
  InProcess connection(service);
  const Message owned = message_of("", 100);
  EXPECT_EQ(start(connection, "Echo", owned).get().message.body[0].data, owned.body[0].data);
  auto text = std::make_unique<std::string>("of the caller");
  Message unowned;
  unowned.body.push_back(slice_of(*text));
  auto reply = start(connection, "Silent", unowned, 20ms);
  ASSERT_TRUE(service.wait_silent(1));
  EXPECT_EQ(reply.get().code, Code::kTimeout);
  text.reset();  // the service still holds the message
  service.answer();
}

TEST(InProcessTest, ASilentServiceEndsAtTheDeadlineAndHearsOfIt) {
  EchoService service;
  InProcess connection(service);
  auto reply = start(connection, "Silent", {}, 20ms);
  ASSERT_TRUE(service.wait_silent(1));
  EXPECT_EQ(reply.get().code, Code::kTimeout);
  EXPECT_TRUE(service.silent_callers()[0]->gone());
  service.answer();  // a late answer does no harm
  EXPECT_TRUE(start(connection, "Echo", {}).get().ok());
}

TEST(InProcessTest, CallsUnderWayAreAbortedAtTheEnd) {
  EchoService service;
  auto connection = std::make_unique<InProcess>(service);
  auto reply = start(*connection, "Silent", {});
  ASSERT_TRUE(service.wait_silent(1));
  connection.reset();
  ASSERT_EQ(reply.wait_for(0s), std::future_status::ready);
  EXPECT_EQ(reply.get().code, Code::kAborted);
  service.answer();
}

class Retrying : public testing::Test {
 protected:
  // Returns a connection that retries after 1 to 4 ms. `fault` is called for each attempt.
  Retry& connect(std::function<Fault(std::size_t)> fault) {
    auto faulty =
        std::make_unique<FaultyConnection>(std::make_unique<InProcess>(service_), std::move(fault));
    faulty_ = faulty.get();
    retry_ = std::make_unique<Retry>(std::move(faulty), strategies::rpc::RetryOptions{1ms, 4ms});
    return *retry_;
  }
  static Fault never(std::size_t) { return {}; }

  EchoService service_;
  FaultyConnection* faulty_ = nullptr;
  std::unique_ptr<Retry> retry_;
};

TEST_F(Retrying, WhatFailsAndThenWorksIsOneReply) {
  for (const auto what : {What::kNotSent, What::kReplyLost}) {
    connect([what](std::size_t call) { return call < 3 ? Fault{what} : Fault{}; });
    const std::size_t before = service_.calls();
    const Message sent = message_of(kHead, 1000);
    const Reply reply = start(*retry_, "Echo", sent).get();
    EXPECT_TRUE(reply.ok());
    EXPECT_TRUE(body_of(reply.message) == body_of(sent));
    EXPECT_EQ(faulty_->calls(), 4u);
    EXPECT_EQ(retry_->retries(), 3u);
    EXPECT_EQ(service_.calls() - before, what == What::kNotSent ? 1u : 4u);
  }
}

TEST_F(Retrying, OnlyTheUnavailableIsTriedAgain) {
  for (const Code code : {Code::kInvalid, Code::kTimeout, Code::kPeerLost, Code::kAborted}) {
    connect([code](std::size_t) { return Fault{What::kNotSent, 0s, code}; });
    EXPECT_EQ(start(*retry_, "Echo", {}).get().code, code);
    EXPECT_EQ(faulty_->calls(), 1u);
  }
}

TEST_F(Retrying, TheDeadlineEndsTheAttempts) {
  connect([](std::size_t) { return Fault{What::kNotSent}; });
  const auto deadline = Clock::now() + 500ms;
  auto promise = std::make_shared<std::promise<Reply>>();
  retry_->start("Echo", {}, deadline, [promise](Reply reply) { promise->set_value(reply); });
  const Reply reply = promise->get_future().get();
  EXPECT_EQ(reply.code, Code::kUnavailable);
  EXPECT_THAT(reply.why, HasSubstr("as the test wants (tried "));
  EXPECT_GT(retry_->retries(), 2u);
  EXPECT_GE(Clock::now(), deadline - 5ms);  // pauses are at most 4 ms
}

TEST_F(Retrying, ACallBetweenAttemptsHoldsUpNobody) {
  auto faulty = std::make_unique<FaultyConnection>(
      std::make_unique<InProcess>(service_),
      [](std::size_t call) { return call == 0 ? Fault{What::kNotSent} : Fault{}; });
  faulty_ = faulty.get();
  retry_ = std::make_unique<Retry>(std::move(faulty), strategies::rpc::RetryOptions{kLong, kLong});
  auto waits = start(*retry_, "Echo", {}, 10 * kLong);
  EXPECT_TRUE(start(*retry_, "Echo", {}).get().ok());
  EXPECT_EQ(waits.wait_for(0s), std::future_status::timeout);
  retry_.reset();
  EXPECT_EQ(waits.get().code, Code::kAborted);
}

TEST_F(Retrying, CallsBetweenAttemptsAndUnderWayAreAbortedAtTheEnd) {
  connect([](std::size_t call) { return call % 2 == 0 ? Fault{What::kNotSent} : Fault{}; });
  std::vector<std::future<Reply>> replies;
  for (int i = 0; i < 20; ++i) replies.push_back(start(*retry_, "Silent", {}));
  ASSERT_TRUE(service_.wait_silent(10));
  retry_.reset();
  for (auto& reply : replies) {
    ASSERT_EQ(reply.wait_for(0s), std::future_status::ready);
    EXPECT_EQ(reply.get().code, Code::kAborted);
  }
  service_.answer();
}

TEST_F(Retrying, PausesDoubleButForAPartThatIsDrawn) {
  const auto pauses_of = [&](std::uint64_t seed) {
    std::vector<Clock::time_point> times;
    auto faulty = std::make_unique<FaultyConnection>(
        std::make_unique<InProcess>(service_), [&](std::size_t call) {
          times.push_back(Clock::now());
          return call < 4 ? Fault{What::kNotSent} : Fault{};
        });
    Retry retry(std::move(faulty), {8ms, 64ms, seed});
    EXPECT_TRUE(start(retry, "Echo", {}).get().ok());
    std::vector<double> pauses;
    for (std::size_t i = 1; i < times.size(); ++i)
      pauses.push_back(std::chrono::duration<double, std::milli>(times[i] - times[i - 1]).count());
    return pauses;
  };
  for (const std::uint64_t seed : {1, 2, 3}) {
    const std::vector<double> pauses = pauses_of(seed);
    ASSERT_EQ(pauses.size(), 4u);
    // The k-th pause is at least half of 8 ms doubled k times. The machine decides how much longer.
    for (std::size_t i = 0; i < pauses.size(); ++i) EXPECT_GE(pauses[i], 4.0 * double(1 << i));
  }
}

}  // namespace rpc_test
}  // namespace lockstep::test
