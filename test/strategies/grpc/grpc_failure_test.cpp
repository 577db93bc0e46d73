// SPDX-License-Identifier: MIT
// gRPC calls during failures of the network or of the peer. Each end notices in time, and no memory
// is read after it was released.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <future>

#include "strategies/grpc/connection.h"
#include "strategies/grpc/server.h"
#include "strategies/parameter_server/rpc/retry.h"
#include "test/strategies/grpc/tcp_proxy.h"
#include "test/strategies/parameter_server/rpc/echo_service.h"

namespace lockstep::test {
namespace grpc_failure_test {

using namespace std::chrono_literals;
using engine::Clock;
using engine::Code;
using strategies::grpc::connect;
using strategies::grpc::serve;
using strategies::rpc::Message;
using strategies::rpc::Reply;

constexpr auto kLong = 60s;            // call deadline, longer than any test
constexpr auto kBefore = kLong - 30s;  // so the deadline did not end it

class GrpcFailure : public testing::Test {
 protected:
  std::future<Reply> start(std::string_view method, Message request) {
    auto promise = std::make_shared<std::promise<Reply>>();
    connection_->start(method, std::move(request), Clock::now() + kLong,
                       [promise](Reply reply) { promise->set_value(std::move(reply)); });
    return promise->get_future();
  }
  // Waits up to ten seconds for `holds`; returns whether it became true.
  static bool soon(const std::function<bool()>& holds) {
    for (const auto until = Clock::now() + 10s; !holds(); std::this_thread::sleep_for(1ms))
      if (Clock::now() > until) return false;
    return true;
  }

  EchoService service_;
  std::unique_ptr<strategies::grpc::Server> server_ = serve(service_);
  const int port_ = server_->port();
  TcpProxy network_{port_};
  std::unique_ptr<strategies::rpc::Connection> connection_ = connect(network_.address());
};

TEST_F(GrpcFailure, ALostConnectionIsHeardOfAtBothEnds) {
  auto reply = start("Silent", message_of("", 1000));
  ASSERT_TRUE(service_.wait_silent(1));
  network_.cut();
  ASSERT_EQ(reply.wait_for(kBefore), std::future_status::ready);
  const Reply came = reply.get();
  EXPECT_EQ(came.code, Code::kUnavailable);
  EXPECT_THAT(came.why, testing::HasSubstr("the connection was cut"));
  EXPECT_TRUE(soon([&] { return service_.silent_callers()[0]->gone(); }));
}

TEST_F(GrpcFailure, ASilentNetworkIsHeardOfAtBothEndsBeforeTheDeadline) {
  auto reply = start("Silent", message_of("", 1000));
  ASSERT_TRUE(service_.wait_silent(1));
  network_.silent(true);
  ASSERT_EQ(reply.wait_for(kBefore), std::future_status::ready);
  const Reply came = reply.get();
  EXPECT_EQ(came.code, Code::kUnavailable);
  EXPECT_THAT(came.why, testing::HasSubstr("fell silent"));
  EXPECT_TRUE(soon([&] { return service_.silent_callers()[0]->gone(); }));
}

TEST_F(GrpcFailure, AConnectionIsUsedAgainWhenTheNetworkIsBack) {
  ASSERT_TRUE(start("Echo", {}).get().ok());
  network_.silent(true);
  ASSERT_EQ(start("Echo", {}).get().code, Code::kUnavailable);
  network_.silent(false);
  EXPECT_TRUE(soon([&] { return start("Echo", {}).get().ok(); }));
}

TEST_F(GrpcFailure, AttemptsAreRepeatedUntilTheNetworkIsBack) {
  connection_ = std::make_unique<strategies::rpc::Retry>(std::move(connection_));
  const Message sent = message_of("", 1 << 20);
  for (int i = 0; i < 3; ++i) {
    network_.silent_after(300000);  // in the middle of a body
    auto reply = start("Echo", sent);
    ASSERT_TRUE(soon([&] { return network_.is_silent(); }));
    network_.cut();
    network_.silent(false);
    const Reply came = reply.get();
    ASSERT_TRUE(came.ok()) << came.why;
    EXPECT_TRUE(body_of(came.message) == body_of(sent));
  }
  EXPECT_GE(static_cast<strategies::rpc::Retry&>(*connection_).retries(), 3u);
}

// A busy service is not dead, even if it computes for longer than the keepalive timeout.
TEST_F(GrpcFailure, ABusyServiceIsNotTakenForDead) {
  std::vector<std::future<Reply>> replies;
  for (int i = 0; i < 40; ++i) replies.push_back(start("Busy", {}));
  for (auto& reply : replies) {
    const Reply came = reply.get();
    EXPECT_TRUE(came.ok()) << came.why;
  }
}

// The caller may overwrite bytes without an owner once `done` was called, even if that was early.
TEST_F(GrpcFailure, NobodyReadsBytesOfACallThatEnded) {
  constexpr std::uint8_t kAfter = 0xee;
  std::vector<std::byte> body(32 << 20);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(soon([&] { return start("Echo", message_of("", 1 << 20)).get().ok(); }));
    std::memset(body.data(), 0x11, body.size());
    Message request;
    request.body.push_back({body.data(), body.size(), nullptr});
    network_.silent_after(1 << 20);
    std::promise<Reply> ended;
    connection_->start("Echo", request, Clock::now() + 300ms,
                       [&](Reply reply) { ended.set_value(std::move(reply)); });
    EXPECT_FALSE(ended.get_future().get().ok());
    std::memset(body.data(), kAfter, body.size());
    network_.count(kAfter);
    network_.silent(false);
    // A new call is answered only after all bytes in flight have arrived.
    ASSERT_TRUE(soon([&] { return start("Echo", {}).get().ok(); }));
    EXPECT_LT(network_.counted(), 1000u);
  }
}

TEST_F(GrpcFailure, CallsThatEndInAnyOrderLeaveNothingBehind) {
  for (int i = 0; i < 30; ++i) {
    std::vector<std::future<Reply>> replies;
    for (int call = 0; call < 8; ++call)
      replies.push_back(start(call % 2 == 0 ? "Echo" : "Silent", message_of("", 100000)));
    if (i % 3 == 0) network_.cut();
    if (i % 3 == 1) connection_.reset();
    if (i % 3 == 2) server_.reset();
    for (auto& reply : replies) {
      // Calls that were not connected yet reach the service later.
      while (reply.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready)
        service_.answer();
      const Reply came = reply.get();
      EXPECT_TRUE(came.ok() || came.code == Code::kUnavailable || came.code == Code::kAborted)
          << came.why;
    }
    if (!server_) server_ = serve(service_, {.address = "127.0.0.1:" + std::to_string(port_)});
    connection_ = connect(network_.address());
  }
}

}  // namespace grpc_failure_test
}  // namespace lockstep::test
