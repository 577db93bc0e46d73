// SPDX-License-Identifier: MIT
// Only peers with the key pass the handshake, and a stranger gets nothing useful from it.
#include "collectives/tcp/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <optional>

#include "test/collectives/tcp/handshake_peer.h"

namespace lockstep::collectives::tcp {
namespace handshake_test {

using namespace std::chrono_literals;
using engine::Clock;
using engine::Error;
using State = Handshake::State;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr std::size_t kHello = sizeof(Handshake::Hello), kChallenge = sizeof(Handshake::Challenge);
constexpr std::size_t kProof = Handshake::kDigestBytes;
constexpr std::size_t kUp = kHello + 2 * kProof, kDown = kChallenge + kProof;
const JobKey kKey{"job 7", std::string(32, 's')};

Handshake dialer(Socket socket, const JobKey& key = kKey, int from = 0, int to = 1,
                 Clock::duration time = 30s) {
  return Handshake::dial(std::move(socket), key, from, to, Clock::now() + time);
}

Handshake acceptor(Socket socket, const JobKey& key = kKey, Clock::duration time = 30s) {
  const auto until = Clock::now() + time;
  return Handshake::accept(
      std::move(socket), key, [](int from, int to) { return from == 0 && to == 1; }, until, until);
}

State advance_to_the_end(Handshake& side) {
  const auto end = Clock::now() + 10s;
  while (side.advance() == State::kUnderWay && Clock::now() < end) std::this_thread::yield();
  return side.advance();
}

// Passes bytes between a dialer and an acceptor, and may change them.
class Between {
 public:
  // Gets the bytes of one direction as they come, and returns those to pass on. `from`: the number
  // of bytes before them.
  using Change = std::function<std::string(std::string bytes, std::size_t from)>;

  explicit Between(const JobKey& dialers = kKey, const JobKey& acceptors = kKey) {
    auto [a, b] = socket_pair();
    auto [c, d] = socket_pair();
    dialer_.emplace(dialer(std::move(a), dialers));
    acceptor_.emplace(acceptor(std::move(c), acceptors));
    to_dialer_ = std::move(b);
    to_acceptor_ = std::move(d);
  }
  // Passes bytes until nothing moves any more.
  void play(const Change& change_up = {}, const Change& change_down = {}) {
    for (bool moves = true; moves;) {
      dialer_->advance();
      moves = pass(to_dialer_, to_acceptor_, up, change_up);
      acceptor_->advance();
      moves = pass(to_acceptor_, to_dialer_, down, change_down) || moves;
    }
    dialer_->advance();
    acceptor_->advance();
  }
  Handshake& dialing() { return *dialer_; }
  Handshake& accepting() { return *acceptor_; }
  std::string up, down;  // bytes that each side sent

 private:
  static bool pass(const Socket& from, const Socket& to, std::string& seen, const Change& change) {
    std::string bytes = received(from);
    if (bytes.empty() && !is_open(from)) shutdown(to.file(), SHUT_WR);
    if (bytes.empty()) return false;
    const std::size_t before = seen.size();
    seen += bytes;
    send_text(to, change ? change(std::move(bytes), before) : bytes);
    return true;
  }

  std::optional<Handshake> dialer_, acceptor_;
  Socket to_dialer_, to_acceptor_;
};

TEST(Handshake, BothSidesThatKnowTheKeyPassAndLeaveWhatFollowsUnread) {
  auto [a, b] = tcp_pair();
  Handshake from = dialer(std::move(a)), to = acceptor(std::move(b));
  while (from.advance() == State::kUnderWay) to.advance();
  ASSERT_EQ(from.advance(), State::kDone) << from.problem();
  const Socket low = from.take();
  send_text(low, "a frame");
  ASSERT_EQ(advance_to_the_end(to), State::kDone) << to.problem();
  EXPECT_EQ(to.from(), 0);
  EXPECT_EQ(to.to(), 1);
  EXPECT_EQ(to.peer_host(), from.peer_host());
  const Socket high = to.take();
  EXPECT_EQ(read_text(high, 7), "a frame");
}

TEST(Handshake, TheSecretIsNotSentAndEachHandshakeIsAnother) {
  Between one, other;
  one.play();
  other.play();
  ASSERT_EQ(one.accepting().advance(), State::kDone) << one.accepting().problem();
  ASSERT_EQ(one.up.size(), kUp);
  ASSERT_EQ(one.down.size(), kDown);
  for (const std::string& bytes : {one.up, one.down})
    EXPECT_THAT(bytes, Not(HasSubstr(kKey.secret.substr(0, 8))));
  const auto proof = [](const std::string& bytes, std::size_t from) {
    return bytes.substr(from, kProof);
  };
  EXPECT_NE(proof(one.up, kHello), proof(other.up, kHello));
  EXPECT_NE(proof(one.up, kHello + kProof), proof(other.up, kHello + kProof));
  EXPECT_NE(proof(one.down, kChallenge), proof(other.down, kChallenge));
}

TEST(Handshake, AWrongKeyOrJobIsRefusedByTheAcceptorBeforeItProvesAnything) {
  const JobKey wrong[] = {{kKey.job, std::string(31, 's') + "t"}, {"job 8", kKey.secret}};
  const std::string said[] = {"does not know the key of the job", "belongs to another job"};
  for (const int i : {0, 1}) {
    Between two(wrong[i], kKey);
    two.play();
    EXPECT_EQ(two.accepting().advance(), State::kRefused);
    EXPECT_THAT(two.accepting().problem(), HasSubstr(said[i]));
    EXPECT_EQ(two.dialing().advance(), State::kRefused);
    EXPECT_THAT(two.dialing().problem(), HasSubstr("closed the connection without a proof"));
    EXPECT_LE(two.down.size(), kChallenge);
  }
}

TEST(Handshake, OneChangedBitInAnyMessageIsNoticed) {
  const auto flip_at = [](std::size_t at) {
    return [at](std::string bytes, std::size_t from) {
      if (at >= from && at < from + bytes.size()) bytes[at - from] ^= char(1 << at % 8);
      return bytes;
    };
  };
  for (std::size_t at = 0; at < kUp; ++at) {
    Between two;
    two.play(flip_at(at));
    EXPECT_NE(two.accepting().advance(), State::kDone) << at;
    if (at < kHello + kProof) {
      EXPECT_NE(two.dialing().advance(), State::kDone) << at;
    }
  }
  for (std::size_t at = 0; at < kDown; ++at) {
    Between two;
    two.play({}, flip_at(at));
    EXPECT_NE(two.accepting().advance(), State::kDone) << at;
    EXPECT_NE(two.dialing().advance(), State::kDone) << at;
  }
}

TEST(Handshake, RecordedMessagesProveNothingLater) {
  Between recorded;
  recorded.play();
  ASSERT_EQ(recorded.accepting().advance(), State::kDone);
  auto [a, b] = socket_pair();
  send_text(a, recorded.up);
  Handshake accepting = acceptor(std::move(b));
  EXPECT_EQ(accepting.advance(), State::kRefused);
  EXPECT_THAT(accepting.problem(), HasSubstr("does not know the key of the job"));
  auto [c, d] = socket_pair();
  send_text(c, recorded.down);
  Handshake dialing = dialer(std::move(d));
  EXPECT_EQ(dialing.advance(), State::kRefused);
  EXPECT_THAT(dialing.problem(), HasSubstr("does not know the key of the job"));
}

TEST(Handshake, AReflectedMessageProvesNothing) {
  // The other side is an echo: the hello comes back as the challenge, and so on.
  auto [a, b] = socket_pair();
  Handshake dialing = dialer(std::move(a));
  while (dialing.advance() == State::kUnderWay) send_text(b, received(b));
  EXPECT_EQ(dialing.advance(), State::kRefused);

  // The stranger sends its own challenge, and then the dialer's proof.
  auto [c, d] = socket_pair();
  Handshake asked = dialer(std::move(c));
  read_text(d, kHello);
  send_text(d, text_of(Handshake::Challenge{}));
  asked.advance();
  send_text(d, read_text(d, kProof));
  EXPECT_EQ(asked.advance(), State::kRefused);
  EXPECT_THAT(asked.problem(), HasSubstr("does not know the key of the job"));
}

// The proofs of the three roles cannot replace each other.
TEST(Handshake, TheAcceptorsProofConfirmsNothing) {
  Between two;
  std::string answer;
  two.play([&](std::string bytes, std::size_t from) { return from > kHello ? answer : bytes; },
           [&](std::string bytes, std::size_t from) {
             if (from == kChallenge) answer = bytes;
             return bytes;
           });
  ASSERT_EQ(answer.size(), kProof);
  EXPECT_EQ(two.accepting().advance(), State::kRefused);
  EXPECT_THAT(two.accepting().problem(), HasSubstr("confirms with a wrong proof"));
}

// A relay is refused: a stranger listens at its own address and passes everything on to a rank.
TEST(Handshake, ARelayFromAnotherAddressIsRefused) {
  auto [dialers, strangers_end] = tcp_pair("127.0.0.2");
  auto [other_end, acceptors] = tcp_pair("127.0.0.1");
  Handshake from = dialer(std::move(dialers)), to = acceptor(std::move(acceptors));
  send_text(other_end, read_text(strangers_end, kHello));
  EXPECT_EQ(advance_to_the_end(to), State::kRefused);
  EXPECT_THAT(to.problem(), AllOf(HasSubstr("dialed 127.0.0.2:"), HasSubstr("reached 127.0.0.1:"),
                                  HasSubstr("redirected or relayed")));
}

TEST(Handshake, AnotherVersionIsNamedOnBothSides) {
  auto [a, b] = tcp_pair();
  const std::string at = remote_endpoint(b);
  Handshake to = acceptor(std::move(b));
  Handshake::Hello hello;
  hello.version = 9;
  send_text(a, text_of(hello));
  EXPECT_EQ(advance_to_the_end(to), State::kRefused);
  EXPECT_THAT(to.problem(), AllOf(StartsWith(at + ": "), HasSubstr("version 9"), HasSubstr("not 2"),
                                  Not(HasSubstr("\n"))));
  const std::string head = read_text(a, 8);  // reply to a dialer of version 9

  auto [c, d] = tcp_pair();
  const std::string there = remote_endpoint(c);
  Handshake from = dialer(std::move(c));
  Handshake::Challenge challenge;
  EXPECT_EQ(head, text_of(challenge).substr(0, 8));
  challenge.version = 1;
  send_text(d, text_of(challenge).substr(0, 8));
  EXPECT_EQ(advance_to_the_end(from), State::kRefused);
  EXPECT_THAT(from.problem(), AllOf(StartsWith(there + ": "), HasSubstr("version 1")));
}

TEST(Handshake, AnUnexpectedRankIsRefusedAndNamed) {
  for (const auto& [from, to] : {std::pair(2, 1), {0, 2}, {1, 0}, {-1, 1}}) {
    auto [a, b] = socket_pair();
    Handshake dialing = dialer(std::move(a), kKey, from, to), accepting = acceptor(std::move(b));
    EXPECT_EQ(accepting.advance(), State::kRefused);
    EXPECT_THAT(accepting.problem(),
                HasSubstr(fmt::format("rank {} is not expected to connect to rank {}", from, to)));
    EXPECT_EQ(dialing.advance(), State::kRefused);
  }
}

// Peers that are silent, truncate a message or send too much end in time, on both sides. Each case
// has what is sent, whether the peer closes, and the message.
TEST(Handshake, SilentTruncatedAndOversizedPeersEndInTimeWithTheirAddress) {
  const std::string hello = text_of(Handshake::Hello{}),
                    challenge = text_of(Handshake::Challenge{});
  struct Case {
    std::string sent;
    bool closes;
    std::string said;
  };
  const auto refused = [](const Case& c, bool dials) {
    auto [a, b] = tcp_pair();
    const std::string at = remote_endpoint(a);
    send_text(b, c.sent);
    if (c.closes) shutdown(b.file(), SHUT_WR);
    const auto begin = Clock::now();
    Handshake side =
        dials ? dialer(std::move(a), kKey, 0, 1, 30ms) : acceptor(std::move(a), kKey, 30ms);
    EXPECT_EQ(advance_to_the_end(side), State::kRefused);
    EXPECT_LT(Clock::now() - begin, 5s);
    EXPECT_THAT(side.problem(),
                AllOf(StartsWith(at + ": "), HasSubstr(c.said), Not(HasSubstr("\n"))));
  };
  for (const bool dials : {true, false}) {
    const std::string& first = dials ? challenge : hello;
    const std::string of = fmt::format("of {} bytes", first.size());
    refused({"", false, "no answer within"}, dials);
    refused({"", true, "closed the connection without a proof"}, dials);
    refused({first.substr(0, 3), false, "only 3 of 8 bytes"}, dials);
    refused({first.substr(0, 50), false, "only 50 " + of}, dials);
    refused({first.substr(0, 50), true, "closed the connection after 50 " + of}, dials);
    refused({std::string(100'000, '\xff'), false, "does not speak the handshake of lockstep"},
            dials);
  }
  refused({challenge + std::string(100'000, 'x'), false, "does not know the key"}, true);
  refused({hello + std::string(100'000, 'x'), false, "belongs to another job"}, false);
}

TEST(Handshake, AShortSecretIsRefused) {
  const JobKey key{"job", std::string(31, 'k')};
  EXPECT_THROW(acceptor(Socket(), key), Error);
  EXPECT_THROW(dialer(Socket(), key), Error);
  EXPECT_EQ(random_secret().size(), 64u);
  EXPECT_NE(random_secret(), random_secret());
}

}  // namespace handshake_test
}  // namespace lockstep::collectives::tcp
