// SPDX-License-Identifier: MIT
// The server refuses unexpected bytes on its port and continues to serve. It gets 10,000 inputs
// each of random bytes, truncated or damaged protocols, and invalid messages.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>
#include <thread>

#include "collectives/tcp/socket.h"
#include "engine/base/random.h"
#include "strategies/grpc/connection.h"
#include "strategies/grpc/server.h"
#include "test/strategies/grpc/certificates.h"
#include "test/strategies/parameter_server/rpc/echo_service.h"

namespace lockstep::test {
namespace grpc_fuzz_test {

using namespace std::chrono_literals;
using collectives::tcp::Socket;
using engine::Clock;
using engine::Code;
using engine::Random;
using strategies::grpc::connect;
using strategies::grpc::serve;
using strategies::rpc::Message;
using strategies::rpc::Reply;

constexpr auto kLong = 60s;                     // reached only by a defect
constexpr int kInputs = 10000, kBetween = 500;  // inputs; inputs between checked calls

std::string noise(Random& random, std::size_t bytes) {
  std::string text(bytes, ' ');
  for (char& c : text) c = char(random.bits());
  return text;
}

// Returns the first bytes of a gRPC client's connection (HTTP/2's preface, settings and a frame),
// changed, truncated, or replaced by other bytes.
std::string input(Random& random) {
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const std::string settings(9, '\0');
  switch (random.below(6)) {
    case 0:
      return noise(random, random.below(2000));
    case 1:
      return preface + noise(random, random.below(500));
    case 2:
      return "GET / HTTP/1.1\r\nHost: " + noise(random, random.below(50)) + "\r\n\r\n";
    case 3:
      return std::string("\x16\x03\x01\x02\x00\x01\x00\x01", 8) + noise(random, random.below(600));
    default: {
      // A frame has a length, type, flags, stream and payload. Types 0 to 9 exist; 10 does not.
      std::string bytes = preface + std::string("\0\0\0\x04\0\0\0\0\0", 9);
      for (std::uint64_t frames = random.below(4) + 1; frames > 0; --frames) {
        const std::string body = noise(random, random.below(60));
        std::size_t length = body.size();
        if (random.below(4) == 0) length = random.below(1 << 24);
        bytes += {char(length >> 16),
                  char(length >> 8),
                  char(length),
                  char(random.below(11)),
                  char(random.bits()),
                  0,
                  0,
                  0,
                  char(random.below(4))};
        bytes += body;
      }
      return bytes;
    }
  }
}

class GrpcFuzz : public testing::Test {
 protected:
  // Sends one input on its own connection, and closes it at once unless `waits` for the answer.
  static void send_raw(int port, const std::string& bytes, bool waits) {
    const auto to = collectives::tcp::endpoints("127.0.0.1:" + std::to_string(port)).at(0);
    const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(socket.file(), reinterpret_cast<const sockaddr*>(&to.address), to.length),
              0);
    ::send(socket.file(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ::shutdown(socket.file(), SHUT_WR);
    char answer[4096];
    while (waits && ::recv(socket.file(), answer, sizeof(answer), 0) > 0) {
    }
  }
  void raw_inputs(const strategies::grpc::TlsFiles& tls, std::uint64_t seed) {
    const auto server = serve(service_, {.tls = tls});
    const auto connection = connect(server->address(), {.tls = tls});
    Random random(engine::stream_key(seed, "bytes on a port"));
    for (int i = 0; i < kInputs; ++i) {
      send_raw(server->port(), input(random), random.below(8) == 0);
      if (i % kBetween == 0) answers(*connection);
    }
    answers(*connection);
    answers(*connect(server->address(), {.tls = tls}));  // new connections are served, too
  }
  static void answers(strategies::rpc::Connection& connection) {
    const Message sent = message_of("", 10000);
    const Message came = strategies::rpc::call(connection, "Echo", sent, Clock::now() + kLong);
    ASSERT_TRUE(body_of(came) == body_of(sent));
  }

  EchoService service_;
};

TEST_F(GrpcFuzz, BytesOnThePortHarmNobody) {
  raw_inputs({}, 1);
}

TEST_F(GrpcFuzz, BytesOnThePortWithTlsHarmNobody) {
  const Certificates certificates;
  raw_inputs(certificates.files(), 2);
}

// The server refuses invalid messages inside valid gRPC frames. The bytes are sent as a head, to
// which nothing is prepended.
TEST_F(GrpcFuzz, MessagesThatAreNoneAreRefused) {
  const auto server = serve(service_);
  const auto connection = connect(server->address());
  Random random(engine::stream_key(3, "messages"));
  int refused = 0, served = 0;
  for (int i = 0; i < kInputs; ++i) {
    Message request;
    if (random.below(2) == 0) {
      request.head = noise(random, random.below(100));
    } else {
      const Message good = message_of({char(0x08), char(0x01)}, random.below(100));
      request.head = good.head + char(0x7a) + char(good.body_bytes()) + body_of(good);
      request.head[random.below(request.head.size())] = char(random.bits());
    }
    std::promise<Reply> promise;
    connection->start("Echo", request, Clock::now() + kLong,
                      [&](Reply reply) { promise.set_value(std::move(reply)); });
    const Reply reply = promise.get_future().get();
    if (reply.ok()) {
      ++served;
    } else {
      ++refused;
      EXPECT_EQ(reply.code, Code::kInvalid) << reply.why;
    }
    if (i % kBetween == 0) answers(*connection);
  }
  EXPECT_GT(refused, kInputs / 4);
  EXPECT_GT(served, kInputs / 10);
  answers(*connection);
}

}  // namespace grpc_fuzz_test
}  // namespace lockstep::test
