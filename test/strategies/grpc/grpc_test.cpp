// SPDX-License-Identifier: MIT
// gRPC calls over loopback: messages arrive intact, and errors are reported in time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <future>
#include <latch>
#include <thread>

#include "strategies/grpc/connection.h"
#include "strategies/grpc/server.h"
#include "test/strategies/parameter_server/rpc/echo_service.h"

namespace lockstep::test {
namespace grpc_test {

using namespace std::chrono_literals;
using engine::Clock;
using engine::Code;
using engine::Error;
using strategies::grpc::connect;
using strategies::grpc::serve;
using strategies::rpc::Message;
using strategies::rpc::Reply;
using testing::HasSubstr;

constexpr auto kLong = 60s;  // reached only by a defect

// Waits up to ten seconds for `holds`; returns whether it became true.
bool soon(const std::function<bool()>& holds) {
  const auto until = Clock::now() + 10s;
  while (!holds()) {
    if (Clock::now() > until) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

const std::string kHead = {char(0x0a), 3, 'a', 'b', 'c', char(0x10), 7};  // two protobuf fields

class Grpc : public testing::Test {
 protected:
  Message call(std::string_view method, Message request, Clock::duration within = kLong) {
    return strategies::rpc::call(*connection_, method, std::move(request), Clock::now() + within);
  }
  std::future<Reply> start(std::string_view method, Message request,
                           Clock::duration within = kLong) {
    auto promise = std::make_shared<std::promise<Reply>>();
    connection_->start(method, std::move(request), Clock::now() + within,
                       [promise](Reply reply) { promise->set_value(std::move(reply)); });
    return promise->get_future();
  }

  EchoService service_;
  std::unique_ptr<strategies::grpc::Server> server_ = serve(service_);
  std::unique_ptr<strategies::rpc::Connection> connection_ = connect(server_->address());
};

TEST_F(Grpc, WhatIsSentComesBack) {
  for (const std::size_t bytes : {0, 1, 127, 128, 16383, 16384, 4 << 20, (4 << 20) + 1, 20 << 20})
    for (const std::size_t slices : {1, 3}) {
      if (bytes > (5 << 20) && slices == 1) continue;
      SCOPED_TRACE(testing::Message() << bytes << " bytes in " << slices << " slices");
      const Message sent = message_of(kHead, bytes, bytes, slices);
      const Message came = call("Echo", sent);
      EXPECT_EQ(came.head, kHead);
      EXPECT_TRUE(body_of(came) == body_of(sent));
    }
}

TEST_F(Grpc, AHeadAloneAndAnEmptyMessageComeBack) {
  EXPECT_EQ(call("Echo", message_of(kHead, 0)).head, kHead);
  const Message nothing = call("Echo", {});
  EXPECT_EQ(nothing.head, "");
  EXPECT_EQ(nothing.body_bytes(), 0u);
}

TEST_F(Grpc, CallsAtOnceDoNotMix) {
  constexpr int kCalls = 300;
  std::latch left(kCalls);
  std::atomic<int> wrong = 0;
  for (int i = 0; i < kCalls; ++i) {
    const Message sent = message_of(kHead, std::size_t(i) * 1000, std::uint64_t(i));
    connection_->start("Echo", sent, Clock::now() + kLong, [&, sent](Reply reply) {
      if (!reply.ok() || body_of(reply.message) != body_of(sent)) ++wrong;
      left.count_down();
    });
  }
  left.wait();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Grpc, ASilentServerIsNamedAtTheDeadline) {
  try {
    call("Silent", {}, 200ms);
    FAIL() << "nobody answered";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kTimeout);
    EXPECT_THAT(error.what(), HasSubstr(server_->address()));
    EXPECT_THAT(error.what(), HasSubstr("Silent"));
  }
}

TEST_F(Grpc, EveryCodeSurvivesTheTripWithItsText) {
  for (int code = 0; code <= int(Code::kAborted); ++code) {
    Message request = message_of({char(0x08), char(code)}, 0);
    const std::string text = "shard 3 of \xc3\xa4 is at 99 %, not\nready";
    request.body.push_back({reinterpret_cast<const std::byte*>(text.data()), text.size(), nullptr});
    const Reply reply = start("Fail", request).get();
    EXPECT_EQ(reply.code, Code(code)) << engine::name(Code(code));
    EXPECT_EQ(reply.why, text);
  }
}

TEST_F(Grpc, ALongTextIsClippedAndTheCodeSurvives) {
  Message request = message_of({char(0x08), char(Code::kCorrupt)}, 1 << 20);
  const Reply reply = start("Fail", request).get();
  EXPECT_EQ(reply.code, Code::kCorrupt);
  EXPECT_EQ(reply.why, body_of(request).substr(0, reply.why.size()));
  EXPECT_GE(reply.why.size(), 1000u);
}

TEST_F(Grpc, AnUnknownMethodIsRefused) {
  EXPECT_EQ(start("Bogus", {}).get().code, Code::kInvalid);
}

TEST_F(Grpc, AMessageOfMoreThanTheLimitIsRefusedAndTheServerLives) {
  constexpr std::size_t kLimit = std::size_t(64) << 20;
  const Message large = message_of(kHead, kLimit);
  Reply refused = start("Echo", large).get();  // by the client
  EXPECT_EQ(refused.code, Code::kInvalid);
  EXPECT_THAT(refused.why, HasSubstr("larger"));
  connection_ = connect(server_->address(), {.most_message_bytes = 4 * kLimit});
  refused = start("Echo", large).get();  // by the server
  EXPECT_EQ(refused.code, Code::kInvalid);
  EXPECT_THAT(refused.why, HasSubstr("larger"));
  EXPECT_EQ(service_.calls(), 0u);
  EXPECT_TRUE(start("Echo", message_of(kHead, kLimit - 100)).get().ok());
}

TEST_F(Grpc, AReplyOfMoreThanTheLimitIsRefused) {
  connection_ = connect(server_->address(), {.most_message_bytes = 1000});
  EXPECT_EQ(start("Echo", message_of(kHead, 2000)).get().code, Code::kInvalid);
  EXPECT_TRUE(start("Echo", message_of(kHead, 500)).get().ok());
}

// The server gives up a message far above its limit in time, and serves other calls meanwhile. If
// memory is short, gRPC itself ends a call of its choice, seldom one of the others. Such a call
// fails with a code that makes clients repeat it.
TEST_F(Grpc, AMessageOfTwoGigabytesIsRefusedWithoutTakingThem) {
  server_ = serve(service_, {.most_memory_bytes = 128 << 20, .arrival = 2s});
  connection_ = connect(server_->address());
  const auto other = connect(server_->address(), {.most_message_bytes = 0x7fffffff});
  const Message piece = message_of("", 8 << 20);
  Message large;
  for (int i = 0; i < 255; ++i) large.body.push_back(piece.body[0]);
  std::promise<Reply> refused;
  other->start("Echo", large, Clock::now() + kLong,
               [&](Reply reply) { refused.set_value(std::move(reply)); });
  auto reply = refused.get_future();
  std::size_t served = 0, given_up_for_it = 0;
  while (reply.wait_for(0s) != std::future_status::ready) {
    const Reply small = start("Echo", message_of(kHead, 1 << 20)).get();
    EXPECT_TRUE(small.ok() || small.code == Code::kUnavailable) << small.why;
    ++(small.ok() ? served : given_up_for_it);
  }
  const Reply given_up = reply.get();
  EXPECT_EQ(given_up.code, Code::kUnavailable) << given_up.why;
  EXPECT_GT(served, given_up_for_it);
  EXPECT_GE(service_.calls(), served);
  EXPECT_LE(service_.calls(), served + given_up_for_it)
      << "the large one never reached the service";
}

TEST_F(Grpc, BodiesArriveInThePiecesInWhichTheyCame) {
  // The body arrives in more than one slice, so nothing concatenated its four megabytes.
  const Message came = call("Count", message_of("", 4 << 20));
  EXPECT_GT(int(came.head.at(1)), 1);
}

TEST_F(Grpc, AServerThatEndsFailsTheCallsUnderWay) {
  auto reply = start("Silent", message_of(kHead, 1000));
  ASSERT_TRUE(service_.wait_silent(1));
  server_.reset();
  EXPECT_EQ(reply.get().code, Code::kUnavailable);
  EXPECT_TRUE(service_.silent_callers()[0]->gone());
  service_.answer();  // no caller is left
  EXPECT_EQ(start("Echo", {}).get().code, Code::kUnavailable);
}

TEST_F(Grpc, AConnectionThatEndsAbortsItsCallsAndTheServiceHearsOfIt) {
  std::vector<std::future<Reply>> replies;
  for (int i = 0; i < 10; ++i) replies.push_back(start("Silent", message_of(kHead, 1000)));
  ASSERT_TRUE(service_.wait_silent(10));
  EXPECT_FALSE(service_.silent_callers()[0]->gone());
  EXPECT_THAT(service_.silent_callers()[0]->peer(), HasSubstr("127.0.0.1"));
  connection_.reset();
  for (auto& reply : replies) {
    ASSERT_EQ(reply.wait_for(0s), std::future_status::ready);
    EXPECT_EQ(reply.get().code, Code::kAborted);
  }
  EXPECT_TRUE(soon([&] { return service_.silent_callers()[9]->gone(); }));
}

TEST_F(Grpc, ACallerWhoseDeadlinePassedIsGone) {
  EXPECT_EQ(start("Silent", {}, 100ms).get().code, Code::kTimeout);
  ASSERT_TRUE(service_.wait_silent(1));
  EXPECT_TRUE(soon([&] { return service_.silent_callers()[0]->gone(); }));
}

TEST_F(Grpc, NobodyThereIsUnavailableWithTheAddress) {
  const std::string address = server_->address();
  server_.reset();
  try {
    call("Echo", {});
    FAIL() << "nobody is there";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnavailable);
    EXPECT_THAT(error.what(), HasSubstr(address + ": nobody answers there: Connection refused"));
  }
}

// A connection finds a server again that restarts at the same port.
TEST_F(Grpc, AConnectionFindsAServerThatCameBack) {
  EXPECT_TRUE(start("Echo", {}).get().ok());
  const std::string address = server_->address();
  server_.reset();
  EXPECT_EQ(start("Echo", {}).get().code, Code::kUnavailable);
  server_ = serve(service_, {.address = address});
  EXPECT_TRUE(soon([&] { return start("Echo", {}).get().ok(); }));
}

TEST_F(Grpc, WithoutTlsOnlyLoopbackIsServedUnlessItIsMeant) {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "10.0.0.1:0", "node7:0"}) {
    try {
      serve(service_, {.address = address});
      ADD_FAILURE() << address;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalid) << address;
      EXPECT_THAT(error.what(), HasSubstr("insecure"));
    }
  }
  for (const char* address : {"127.0.0.1:0", "127.1.2.3:0", "localhost:0"}) {
    const auto server = serve(service_, {.address = address});
    EXPECT_GT(server->port(), 0);
    EXPECT_THAT(server->address(), HasSubstr(std::to_string(server->port())));
  }
  const auto open = serve(service_, {.address = "0.0.0.0:0", .insecure = true});
  const auto to = connect("127.0.0.1:" + std::to_string(open->port()));
  EXPECT_TRUE(strategies::rpc::call(*to, "Echo", {}, Clock::now() + kLong).head.empty());
}

TEST_F(Grpc, AnAddressThatIsNoneIsRefused) {
  for (const char* address : {"", "host", "host:", ":1", "host:x", "host:65536", "host:-1", "::1:4",
                              "[::1:4", "ho st:1", "unix:/tmp/a", "dns:///a:1", "host:1 "}) {
    EXPECT_THROW(serve(service_, {.address = address}), Error) << address;
    EXPECT_THROW(connect(address), Error) << address;
  }
}

TEST_F(Grpc, AnAddressThatCannotBeHadIsAnErrorThatSaysWhy) {
  const auto why = [&](const std::string& address) -> std::string {
    try {
      serve(service_, {.address = address, .insecure = true});
      return "it serves";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kIo);
      EXPECT_THAT(error.what(), HasSubstr(address));
      return error.what();
    }
  };
  EXPECT_THAT(why(server_->address()), HasSubstr("already in use"));
  EXPECT_THAT(why("192.0.2.1:4711"), HasSubstr("assign requested address"));  // unused
}

// A plain gRPC client, without the library's own connection.
class Plain : public Grpc {
 protected:
  ::grpc::Status call(const std::string& method, const std::string& bytes, std::string* reply) {
    ::grpc::GenericStub stub(
        ::grpc::CreateChannel(server_->address(), ::grpc::InsecureChannelCredentials()));
    ::grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kLong);
    const ::grpc::Slice slice(bytes);
    const ::grpc::ByteBuffer request(&slice, 1);
    ::grpc::ByteBuffer buffer;
    std::promise<::grpc::Status> status;
    stub.UnaryCall(&context, method, {}, &request, &buffer,
                   [&](::grpc::Status came) { status.set_value(std::move(came)); });
    ::grpc::Status result = status.get_future().get();
    std::vector<::grpc::Slice> slices;
    if (result.ok() && buffer.Dump(&slices).ok())
      for (const auto& one : slices)
        reply->append(reinterpret_cast<const char*>(one.begin()), one.size());
    return result;
  }
};

TEST_F(Plain, HealthChecksAreAnswered) {
  std::string reply;
  EXPECT_TRUE(call("/grpc.health.v1.Health/Check", "", &reply).ok());
  EXPECT_EQ(reply, std::string("\x08\x01"));  // status: SERVING
  server_->healthy(false);
  reply.clear();
  EXPECT_TRUE(call("/grpc.health.v1.Health/Check", "", &reply).ok());
  EXPECT_EQ(reply, std::string("\x08\x02"));
}

TEST_F(Plain, AnotherServiceIsUnimplemented) {
  std::string reply;
  EXPECT_EQ(call("/lockstep.Other/Echo", "", &reply).error_code(),
            ::grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(Plain, WhatIsNoMessageIsAnInvalidArgument) {
  std::string reply;
  EXPECT_EQ(call("/lockstep.ParameterServer/Echo", "\x7a\xff\xff\xff\xff\xff", &reply).error_code(),
            ::grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(service_.calls(), 0u);
  EXPECT_TRUE(call("/lockstep.ParameterServer/Echo", "\x7a\x01z", &reply).ok());
  EXPECT_EQ(reply, "\x7a\x01z");
}

}  // namespace grpc_test
}  // namespace lockstep::test
