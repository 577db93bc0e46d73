// SPDX-License-Identifier: MIT
// Tests damaged handshakes: neither side accepts the peer as a rank, and each side ends in time.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "collectives/tcp/handshake.h"
#include "engine/base/error.h"
#include "test/fuzz/damage.h"

namespace lockstep::test {
namespace handshake_fuzz_test {

using collectives::JobKey;
using collectives::tcp::Handshake;
using collectives::tcp::Socket;
using engine::Clock;

template <class Message>
std::string text_of(const Message& message) {
  return {reinterpret_cast<const char*>(&message), sizeof message};
}

// Returns the reason with which a side refuses a peer that sends `sent` and nothing more.
std::string refusal(bool dials, const JobKey& key, const std::string& sent) {
  int files[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, files) != 0) return "no pair of sockets";
  Socket mine(files[0]);
  const Socket theirs(files[1]);
  ::send(theirs.file(), sent.data(), sent.size(), MSG_NOSIGNAL);
  shutdown(theirs.file(), SHUT_WR);
  const auto until = Clock::now() + std::chrono::seconds(30);
  Handshake side = dials ? Handshake::dial(std::move(mine), key, 0, 1, until)
                         : Handshake::accept(
                               std::move(mine), key, [](int, int) { return true; }, until, until);
  EXPECT_EQ(side.advance(), Handshake::State::kRefused);
  EXPECT_FALSE(side.proven());
  return side.problem();
}

TEST(HandshakeFuzz, ADamagedHandshakeProvesNothing) {
  const JobKey key{"job", std::string(32, 'k')};
  // The hello comes from a dialer that knows the job; an invalid proof follows it.
  int files[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, files), 0);
  const Socket wire(files[1]);
  const auto until = Clock::now() + std::chrono::seconds(30);
  const Handshake dialer = Handshake::dial(Socket(files[0]), key, 0, 1, until);
  std::string hello(sizeof(Handshake::Hello), '\0');
  ASSERT_EQ(::recv(wire.file(), hello.data(), hello.size(), 0), ssize_t(hello.size()));
  const std::string proofs(2 * Handshake::kDigestBytes, 'p');
  const std::string up = hello + proofs, down = text_of(Handshake::Challenge{}) + proofs;
  for (std::uint64_t number = 0; number < kInputs; ++number) {
    ASSERT_FALSE(refusal(false, key, damaged(up, number)).empty()) << number;
    ASSERT_FALSE(refusal(true, key, damaged(down, number)).empty()) << number;
  }
}

}  // namespace handshake_fuzz_test
}  // namespace lockstep::test
