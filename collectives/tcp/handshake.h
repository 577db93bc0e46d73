// SPDX-License-Identifier: MIT
// Mutual proof that both ends of a connection know the secret of the same job. The secret is never
// sent. The messages have fixed sizes:
//   dialer    hello        version, ranks, job, nonce, host name, endpoint that it dialed
//   acceptor  challenge    version, nonce, host name
//   dialer    proof        HMAC-SHA-256 over the role, the hello and the challenge
//   acceptor  proof        the same for the role of the acceptor
//   dialer    confirmation the same for a third role; the acceptor uses no connection without it
// Nonces are fresh, so recorded messages prove nothing. Roles differ, so reflected messages prove
// nothing. The acceptor refuses a connection that was dialed to another endpoint than its own, so
// nobody can relay a handshake to another address. The data that follows is neither encrypted nor
// signed. One thread; never blocks.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "collectives/tcp/job_key.h"
#include "collectives/tcp/socket.h"
#include "engine/base/error.h"

namespace lockstep::collectives::tcp {

class Handshake {
 public:
  static constexpr std::uint32_t kMagic = 0x314b534c, kVersion = 2;
  static constexpr std::size_t kDigestBytes = 32, kTextBytes = 64;
  using Digest = std::array<unsigned char, kDigestBytes>;
  using Text = std::array<char, kTextBytes>;
  // The messages have the byte order of the machine: another order gives another magic.
  struct Hello {
    std::uint32_t magic = kMagic, version = kVersion;
    std::int32_t from = -1, to = -1;
    Digest job{}, nonce{};
    Text host{}, dialed{};
  };
  struct Challenge {
    std::uint32_t magic = kMagic, version = kVersion;
    Digest nonce{};
    Text host{};
  };

  enum class State { kUnderWay, kDone, kRefused };
  // Returns whether rank `from` is awaited by rank `to` of this process.
  using Expects = std::function<bool(int from, int to)>;
  using Time = engine::Clock::time_point;

  // Both take a connected, nonblocking socket; `key` outlives the handshake. They throw
  // Error(kInvalid) if the secret is too short, and Error(kIo) if OpenSSL fails.
  static Handshake dial(Socket socket, const JobKey& key, int from, int to, Time until);
  // The dialer has until `until` to prove itself, and from then on until `end` to confirm: a dialer
  // that has confirmed relies on the connection.
  static Handshake accept(Socket socket, const JobKey& key, Expects expects, Time until, Time end);

  // Sends and receives what is possible at once. Closes the socket of a refused peer.
  State advance();
  int file() const { return socket_.file(); }  // to poll for input
  bool proven() const { return proven_; }      // the peer knows the secret
  int from() const { return hello_.from; }
  int to() const { return hello_.to; }
  std::string peer_host() const;                       // the name that the peer sent
  const std::string& problem() const { return why_; }  // "10.0.0.2:41000: ...", once refused
  Socket take() { return std::move(socket_); }         // after kDone

 private:
  enum class Role : unsigned char { kDialer, kAcceptor, kConfirmation };
  enum class Next { kHelloHead, kHello, kChallengeHead, kChallenge, kProof, kConfirmation };

  Handshake(Socket socket, const JobKey& key, bool dials, Time until, Time end);
  std::span<unsigned char> wanted();
  void receive();
  void handle();
  void handle_hello();
  void handle_proof();
  bool right_head(std::uint32_t magic, std::uint32_t version);
  Digest proof_of(Role role) const;
  bool proves(Role role) const;
  void send(std::span<const unsigned char> bytes);
  void refuse(const std::string& why);

  Socket socket_;
  const JobKey* key_;
  bool dials_;
  Time until_, end_;
  Expects expects_ = {};
  std::string peer_;  // the peer's endpoint
  Next next_;
  std::size_t have_ = 0;  // bytes of the next message
  Hello hello_ = {};
  Challenge challenge_ = {};
  Digest proof_ = {};  // the peer's
  State state_ = State::kUnderWay;
  bool proven_ = false;
  std::string why_ = {};
};

}  // namespace lockstep::collectives::tcp
