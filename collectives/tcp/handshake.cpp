// SPDX-License-Identifier: MIT
// HMAC is RFC 2104; SHA-256 is FIPS 180-4.
#include "collectives/tcp/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::collectives::tcp {
namespace {

constexpr std::size_t kHeadBytes = 8;  // magic and version, the same in all versions
static_assert(sizeof(Handshake::Hello) == 208 && sizeof(Handshake::Challenge) == 104);
static_assert(std::has_unique_object_representations_v<Handshake::Hello> &&
              std::has_unique_object_representations_v<Handshake::Challenge>);

template <class Message>
std::span<const unsigned char> message_bytes(const Message& message) {
  return {reinterpret_cast<const unsigned char*>(&message), sizeof message};
}

template <class Message>
std::span<unsigned char> room_of(Message& message) {
  return {reinterpret_cast<unsigned char*>(&message), sizeof message};
}

void require_openssl(bool ok, const char* what) {
  if (!ok) engine::fail(engine::Code::kIo, "OpenSSL fails to compute {}", what);
}

Handshake::Digest fresh_nonce() {
  Handshake::Digest nonce;
  require_openssl(RAND_bytes(nonce.data(), int(nonce.size())) == 1, "random numbers");
  return nonce;
}

Handshake::Digest digest_of(const std::string& text) {
  Handshake::Digest digest;
  const auto* data = reinterpret_cast<const unsigned char*>(text.data());
  require_openssl(SHA256(data, text.size(), digest.data()) != nullptr, "SHA-256");
  return digest;
}

Handshake::Text text_field(const std::string& text) {
  Handshake::Text chars{};
  text.copy(chars.data(), chars.size() - 1);
  return chars;
}

// Returns the text of a field that a stranger may have written, with ? for unprintable characters.
std::string readable(const Handshake::Text& field) {
  std::string text(field.data(), strnlen(field.data(), field.size()));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < 33 || c > 126; }, '?');
  return text;
}

Handshake::Text host_here() {
  Handshake::Text name{};
  if (gethostname(name.data(), name.size() - 1) != 0) name[0] = '?';
  name.back() = '\0';
  return name;
}

}  // namespace

Handshake::Handshake(Socket socket, const JobKey& key, bool dials, Time until, Time end)
    : socket_(std::move(socket)),
      key_(&key),
      dials_(dials),
      until_(until),
      end_(end),
      peer_(remote_endpoint(socket_)),
      next_(dials ? Next::kChallengeHead : Next::kHelloHead) {
  require_possible(key);
}

Handshake Handshake::dial(Socket socket, const JobKey& key, int from, int to, Time until) {
  Handshake dialer(std::move(socket), key, true, until, until);
  dialer.hello_ = {.from = from,
                   .to = to,
                   .job = digest_of(key.job),
                   .nonce = fresh_nonce(),
                   .host = host_here(),
                   .dialed = text_field(dialer.peer_)};
  dialer.send(message_bytes(dialer.hello_));
  return dialer;
}

Handshake Handshake::accept(Socket socket, const JobKey& key, Expects expects, Time until,
                            Time end) {
  Handshake acceptor(std::move(socket), key, false, until, end);
  acceptor.expects_ = std::move(expects);
  return acceptor;
}

Handshake::State Handshake::advance() {
  receive();
  if (state_ == State::kUnderWay && engine::Clock::now() > until_)
    refuse(have_ == 0 ? "no answer within the time of the handshake"
                      : fmt::format("only {} of {} bytes within the time of the handshake", have_,
                                    wanted().size()));
  return state_;
}

std::string Handshake::peer_host() const {
  return readable(dials_ ? challenge_.host : hello_.host);
}

std::span<unsigned char> Handshake::wanted() {
  switch (next_) {
    case Next::kHelloHead:
      return room_of(hello_).first(kHeadBytes);
    case Next::kHello:
      return room_of(hello_);
    case Next::kChallengeHead:
      return room_of(challenge_).first(kHeadBytes);
    case Next::kChallenge:
      return room_of(challenge_);
    case Next::kProof:
    case Next::kConfirmation:
      break;
  }
  return proof_;
}

// Reads no byte that follows the handshake.
void Handshake::receive() {
  while (state_ == State::kUnderWay) {
    const std::span<unsigned char> message = wanted();
    const ssize_t got =
        ::recv(socket_.file(), message.data() + have_, message.size() - have_, MSG_DONTWAIT);
    if (got > 0) {
      have_ += std::size_t(got);
      if (have_ == message.size()) handle();
    } else if (got == 0) {
      refuse(have_ == 0 ? std::string("closed the connection without a proof that it is a rank")
                        : fmt::format("closed the connection after {} of {} bytes", have_,
                                      message.size()));
    } else if (errno != EINTR) {
      if (errno != EAGAIN && errno != EWOULDBLOCK) refuse(std::strerror(errno));
      return;
    }
  }
}

void Handshake::handle() {
  switch (next_) {
    case Next::kHelloHead:
      if (right_head(hello_.magic, hello_.version)) next_ = Next::kHello;
      return;  // the head stays in front of the rest
    case Next::kChallengeHead:
      if (right_head(challenge_.magic, challenge_.version)) next_ = Next::kChallenge;
      return;
    case Next::kHello:
      handle_hello();
      break;
    case Next::kChallenge:
      send(proof_of(Role::kDialer));
      next_ = Next::kProof;
      break;
    case Next::kProof:
      handle_proof();
      break;
    case Next::kConfirmation:
      if (!proves(Role::kConfirmation)) return refuse("confirms with a wrong proof");
      state_ = State::kDone;
      break;
  }
  have_ = 0;
}

void Handshake::handle_hello() {
  const std::string here = local_endpoint(socket_);
  if (hello_.job != digest_of(key_->job)) return refuse("belongs to another job");
  if (hello_.dialed != text_field(here))
    return refuse(fmt::format("dialed {} and reached {}: the connection is redirected or relayed",
                              readable(hello_.dialed), here));
  if (!expects_(hello_.from, hello_.to))
    return refuse(
        fmt::format("rank {} is not expected to connect to rank {}", hello_.from, hello_.to));
  challenge_ = {.nonce = fresh_nonce(), .host = host_here()};
  send(message_bytes(challenge_));
  next_ = Next::kProof;
}

void Handshake::handle_proof() {
  proven_ = proves(dials_ ? Role::kAcceptor : Role::kDialer);
  if (!proven_) return refuse("does not know the key of the job");
  send(proof_of(dials_ ? Role::kConfirmation : Role::kAcceptor));
  if (state_ == State::kRefused) return;
  if (dials_) state_ = State::kDone;
  next_ = Next::kConfirmation;
  until_ = end_;
}

bool Handshake::right_head(std::uint32_t magic, std::uint32_t version) {
  if (magic != kMagic) {
    refuse("does not speak the handshake of lockstep");
  } else if (version != kVersion) {
    // The dialer also learns the version and reports it.
    if (!dials_) send(message_bytes(Challenge{}).first(kHeadBytes));
    refuse(
        fmt::format("speaks version {} of the handshake, not {}; all ranks need the same "
                    "version of lockstep",
                    version, kVersion));
  }
  return state_ == State::kUnderWay;
}

Handshake::Digest Handshake::proof_of(Role role) const {
  std::vector<unsigned char> text{static_cast<unsigned char>(role)};
  for (const auto part : {message_bytes(hello_), message_bytes(challenge_)})
    text.insert(text.end(), part.begin(), part.end());
  Digest digest{};
  unsigned length = 0;
  require_openssl(HMAC(EVP_sha256(), key_->secret.data(), int(key_->secret.size()), text.data(),
                       text.size(), digest.data(), &length) != nullptr &&
                      length == digest.size(),
                  "HMAC-SHA-256");
  return digest;
}

bool Handshake::proves(Role role) const {
  return CRYPTO_memcmp(proof_of(role).data(), proof_.data(), proof_.size()) == 0;
}

// Sends a message. A new connection has room for one; a connection without room is refused.
void Handshake::send(std::span<const unsigned char> bytes) {
  const ssize_t sent =
      ::send(socket_.file(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != ssize_t(bytes.size()) && state_ == State::kUnderWay)
    refuse("closed the connection without a proof that it is a rank");
}

void Handshake::refuse(const std::string& why) {
  why_ = fmt::format("{}: {}", peer_.empty() ? "peer" : peer_, why);
  state_ = State::kRefused;
  socket_ = Socket();
}

}  // namespace lockstep::collectives::tcp
