// SPDX-License-Identifier: MIT
#include "collectives/tcp/rendezvous.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>

#include "engine/base/error.h"

namespace lockstep::collectives::tcp {
namespace {

using engine::Clock;
using std::chrono::milliseconds;

constexpr std::uint32_t kMagic = 0x314b534c, kGo = 0x214f474c, kVersion = 1;
constexpr milliseconds kStrangersTime{2000}, kConnectTime{2000};
constexpr std::size_t kMostStrangers = 256;

// What goes over the wire, in the byte order of the machine: another order gives another magic.
struct Hello {
  std::uint32_t magic = kMagic, version = kVersion;
  std::int32_t from = -1, to = -1;
  std::array<char, kKeyBytes> key{};
  std::array<char, 64> host{};
};
struct Acknowledgement {
  std::uint32_t magic = kMagic, version = kVersion;
  std::int32_t from = -1, to = -1;
  std::array<char, 64> host{};
};

// The difference of all bytes, whatever the first ones are.
bool equal_in_constant_time(const std::array<char, kKeyBytes>& a, const std::string& b) {
  unsigned difference = 0;
  for (std::size_t i = 0; i < kKeyBytes; ++i) difference |= unsigned(a[i] ^ b[i]) & 0xffu;
  return difference == 0;
}

std::array<char, 64> host_here() {
  std::array<char, 64> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) name[0] = '?';
  name.back() = '\0';
  return name;
}

std::string readable(const std::array<char, 64>& host) {
  std::string text(host.data(), strnlen(host.data(), host.size()));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < 33 || c > 126; }, '?');
  return text;
}

bool send_whole(const Socket& socket, const void* data, std::size_t bytes) {
  // A new connection has room for a hundred bytes; one that has not is none worth having.
  return ::send(socket.file(), data, bytes, MSG_NOSIGNAL) == ssize_t(bytes);
}

// Reads a fixed number of bytes in as many pieces as they come.
class Reader {
 public:
  // True when `bytes` are there. Sets `gone` where no more will come.
  bool fill(const Socket& socket, void* into, std::size_t bytes, bool& gone) {
    while (have_ < bytes) {
      const auto got = ::recv(socket.file(), static_cast<char*>(into) + have_, bytes - have_, 0);
      if (got > 0) {
        have_ += std::size_t(got);
      } else if (got < 0 && errno == EINTR) {
        continue;
      } else {
        gone = got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
        return false;
      }
    }
    have_ = 0;
    return true;
  }

 private:
  std::size_t have_ = 0;
};

// Somebody who connected to us.
struct Incoming {
  Socket socket;
  Clock::time_point until;
  Reader reader = {};
  Hello hello = {};
  bool known = false;  // the key was right
  std::uint32_t go = 0;
};

// One pair that we connect: one address after the other, round after round.
struct Outgoing {
  enum class State { kIdle, kConnecting, kGreeted };
  std::size_t pair;
  std::vector<Endpoint> endpoints;
  std::size_t next = 0;
  int rounds = 0;
  State state = State::kIdle;
  Socket socket = {};
  Clock::time_point until = {};  // idle: when to try; else: when to give this attempt up
  Reader reader = {};
  Acknowledgement answer = {};
  std::string problem = "not tried";
};

class Rendezvous {
 public:
  Rendezvous(std::span<const Socket> listeners, const Invitation& invitation)
      : listeners_(listeners),
        invitation_(invitation),
        host_(host_here()),
        end_(Clock::now() + invitation.deadline),
        met_(invitation.pairs.size()) {
    for (std::size_t i = 0; i < met_.size(); ++i) {
      const auto [here, there] = invitation.pairs[i];
      engine::require(here >= 0 && there >= 0 && here != there &&
                          std::size_t(there) < invitation.address.size(),
                      "a connection of rank {} with rank {} of {}", here, there,
                      invitation.address.size());
      met_[i].here = here;
      met_[i].there = there;
      if (here < there) {
        outgoing_.push_back(
            {.pair = i, .endpoints = endpoints(invitation.address[std::size_t(there)])});
      }
    }
  }

  std::vector<Met> run() {
    std::vector<pollfd> polled;
    for (Outgoing& o : outgoing_) dial(o);  // before the first sleep
    while (std::any_of(met_.begin(), met_.end(), [](const Met& m) { return !m.socket; })) {
      if (invitation_.check) invitation_.check();
      if (Clock::now() > end_) give_up();
      polled.clear();
      for (const Socket& listener : listeners_)
        polled.push_back({.fd = listener.file(), .events = POLLIN, .revents = 0});
      for (const Incoming& i : incoming_)
        polled.push_back({.fd = i.socket.file(), .events = POLLIN, .revents = 0});
      for (const Outgoing& o : outgoing_) {
        const short events = o.state == Outgoing::State::kConnecting ? POLLOUT : POLLIN;
        polled.push_back(
            {.fd = o.socket.file(), .events = events, .revents = 0});  // -1 is passed over
      }
      poll(polled.data(), polled.size(), 10);  // times are looked at each round: no long sleep
      std::size_t at = listeners_.size();
      const std::size_t strangers = incoming_.size();
      for (std::size_t i = 0; i < strangers; ++i, ++at)
        listen_to(incoming_[i], polled[at].revents != 0);
      for (Outgoing& o : outgoing_) call(o, polled[at++].revents != 0);
      std::erase_if(incoming_, [](const Incoming& i) { return !i.socket; });
      std::erase_if(outgoing_, [this](const Outgoing& o) { return bool(met_[o.pair].socket); });
      for (std::size_t i = 0; i < listeners_.size(); ++i)
        if (polled[i].revents != 0) accept_all(listeners_[i]);
    }
    return std::move(met_);
  }

 private:
  void accept_all(const Socket& listener) {
    for (;;) {
      Socket socket(accept4(listener.file(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) return;
      if (incoming_.size() >=
          kMostStrangers) {  // a flood: the oldest of those who have not shown a key
        const auto oldest = std::find_if(incoming_.begin(), incoming_.end(),
                                         [](const Incoming& i) { return !i.known; });
        if (oldest != incoming_.end()) incoming_.erase(oldest);
      }
      tune(socket);
      incoming_.push_back({.socket = std::move(socket), .until = Clock::now() + kStrangersTime});
      listen_to(incoming_.back(), true);
      if (!incoming_.back().socket) incoming_.pop_back();
    }
  }

  // The pair that this hello is for, if it is one of ours that still waits.
  Met* expected(const Hello& hello) {
    for (Met& m : met_) {
      if (m.here == hello.to && m.there == hello.from && m.here > m.there && !m.socket) return &m;
    }
    return nullptr;
  }

  void listen_to(Incoming& i, bool ready) {
    bool gone = Clock::now() > i.until;
    if (ready && !gone && !i.known && i.reader.fill(i.socket, &i.hello, sizeof i.hello, gone)) {
      const bool right = equal_in_constant_time(i.hello.key, invitation_.key);
      if (right && i.hello.magic == kMagic && i.hello.version == kVersion &&
          expected(i.hello) != nullptr) {
        const Acknowledgement answer{.from = i.hello.to, .to = i.hello.from, .host = host_};
        i.known = true;
        i.until = end_;  // from here on it ends by itself when the other side gives it up
        gone = !send_whole(i.socket, &answer, sizeof answer);
      } else {
        gone = true;
      }
    }
    if (ready && !gone && i.known && i.reader.fill(i.socket, &i.go, sizeof i.go, gone)) {
      Met* pair = expected(i.hello);
      if (pair != nullptr && i.go == kGo) {
        pair->host = readable(i.hello.host);
        pair->socket = std::move(i.socket);
        return;
      }
      gone = true;
    }
    if (gone) i.socket = Socket();
  }

  void call(Outgoing& o, bool ready) {
    const auto now = Clock::now();
    if (o.state == Outgoing::State::kIdle) {
      if (now >= o.until) dial(o);
      return;
    }
    if (o.state == Outgoing::State::kConnecting && ready) {
      int error = 0;
      socklen_t length = sizeof error;
      getsockopt(o.socket.file(), SOL_SOCKET, SO_ERROR, &error, &length);
      if (error != 0) return hang_up(o, std::strerror(error));
      return greet(o);
    }
    bool gone = false;
    if (o.state == Outgoing::State::kGreeted && ready &&
        o.reader.fill(o.socket, &o.answer, sizeof o.answer, gone)) {
      Met& pair = met_[o.pair];
      const bool right = o.answer.magic == kMagic && o.answer.version == kVersion &&
                         o.answer.from == pair.there && o.answer.to == pair.here;
      if (!right) return hang_up(o, "somebody else answers");
      if (!send_whole(o.socket, &kGo, sizeof kGo)) return hang_up(o, "closed");
      pair.host = readable(o.answer.host);
      pair.socket = std::move(o.socket);
      return;
    }
    if (gone) return hang_up(o, "closed by the other side");
    if (now > o.until) hang_up(o, "no answer");
  }

  void dial(Outgoing& o) {
    const Endpoint& to = o.endpoints[o.next];
    o.reader = Reader();
    o.socket =
        Socket(::socket(to.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!o.socket) return hang_up(o, std::strerror(errno));
    o.state = Outgoing::State::kConnecting;
    o.until = Clock::now() + kConnectTime;
    const int result =
        ::connect(o.socket.file(), reinterpret_cast<const sockaddr*>(&to.address), to.length);
    if (result == 0) return greet(o);
    if (errno != EINPROGRESS && errno != EINTR) hang_up(o, std::strerror(errno));
  }

  void greet(Outgoing& o) {
    tune(o.socket);
    Hello hello{.from = met_[o.pair].here, .to = met_[o.pair].there, .host = host_};
    std::copy_n(invitation_.key.begin(), kKeyBytes, hello.key.begin());
    if (!send_whole(o.socket, &hello, sizeof hello)) return hang_up(o, "closed by the other side");
    o.state = Outgoing::State::kGreeted;
    // The other side may not have come so far yet. Where there is another way to it, that is tried
    // after a while; each round is more patient than the last.
    o.until =
        o.endpoints.size() == 1 ? end_ : Clock::now() + kConnectTime * std::min(o.rounds + 1, 5);
  }

  void hang_up(Outgoing& o, const std::string& why) {
    o.problem = fmt::format("{}: {}", o.endpoints[o.next].text, why);
    o.socket = Socket();
    o.state = Outgoing::State::kIdle;
    o.until = Clock::now();
    if (++o.next == o.endpoints.size()) {
      o.next = 0;
      o.until += milliseconds(20) * std::min(++o.rounds, 20);
    }
  }

  [[noreturn]] void give_up() const {
    std::string missing;
    for (std::size_t i = 0; i < met_.size(); ++i) {
      if (met_[i].socket) continue;
      const auto call = std::find_if(outgoing_.begin(), outgoing_.end(),
                                     [&](const Outgoing& o) { return o.pair == i; });
      missing +=
          fmt::format("{}rank {} with rank {} ({})", missing.empty() ? "" : "; ", met_[i].here,
                      met_[i].there, call == outgoing_.end() ? "it did not call" : call->problem);
    }
    engine::fail(engine::Code::kTimeout, "no connection within {} s: {}",
                 double(invitation_.deadline.count()) / 1000, missing);
  }

  std::span<const Socket> listeners_;
  const Invitation& invitation_;
  std::array<char, 64> host_;
  Clock::time_point end_;
  std::vector<Met> met_;
  std::deque<Incoming> incoming_;
  std::vector<Outgoing> outgoing_;
};

}  // namespace

std::vector<Met> meet(std::span<const Socket> listeners, const Invitation& invitation) {
  engine::require(invitation.key.size() == kKeyBytes, "the key of a job has {} bytes, not {}",
                  kKeyBytes, invitation.key.size());
  return Rendezvous(listeners, invitation).run();
}

}  // namespace lockstep::collectives::tcp
