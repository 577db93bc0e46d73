// SPDX-License-Identifier: MIT
#include "collectives/tcp/rendezvous.h"

#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <system_error>

#include "collectives/tcp/handshake.h"
#include "collectives/tcp/nearest.h"
#include "collectives/tcp/private_socket.h"
#include "engine/base/error.h"

namespace lockstep::collectives::tcp {
namespace {

using engine::Clock;
using std::chrono::milliseconds;

constexpr milliseconds kStrangersTime{2000}, kConnectTime{2000};
constexpr std::size_t kMostStrangers = 256;

// Dials one pair: one address after the other, round after round.
struct Outgoing {
  std::size_t pair;
  std::vector<Endpoint> endpoints;
  std::vector<std::string> problems;  // the last one per endpoint
  std::size_t next = 0;
  int rounds = 0;
  // The attempt is idle if neither is set.
  Socket connecting = {};
  std::optional<Handshake> handshake = {};
  Clock::time_point until = {};  // when to dial (idle) or to give up

  int file() const { return handshake ? handshake->file() : connecting.file(); }
};

class Rendezvous {
 public:
  Rendezvous(std::span<const Socket> listeners, const Invitation& invitation)
      : listeners_(listeners),
        invitation_(invitation),
        end_(Clock::now() + invitation.deadline),
        met_(invitation.pairs.size()) {
    const std::vector<OwnAddress> own = own_addresses();
    for (std::size_t i = 0; i < met_.size(); ++i) {
      const auto [here, there] = invitation.pairs[i];
      engine::require(here >= 0 && there >= 0 && here != there &&
                          std::size_t(there) < invitation.address.size(),
                      "a connection of rank {} with rank {} of {}", here, there,
                      invitation.address.size());
      met_[i].here = here;
      met_[i].there = there;
      if (here < there) {
        auto all = nearest_first(endpoints(invitation.address[std::size_t(there)]), own);
        std::vector<std::string> problems;
        for (const Endpoint& endpoint : all) problems.push_back(endpoint.text + ": not tried");
        outgoing_.push_back(
            {.pair = i, .endpoints = std::move(all), .problems = std::move(problems)});
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
      for (const Handshake& i : incoming_)
        polled.push_back({.fd = i.file(), .events = POLLIN, .revents = 0});
      for (const Outgoing& o : outgoing_) {
        const short events = o.connecting ? POLLOUT : POLLIN;
        polled.push_back({.fd = o.file(), .events = events, .revents = 0});  // -1 is ignored
      }
      poll(polled.data(), polled.size(), 10);  // short, since each round checks the times
      std::size_t at = listeners_.size() + incoming_.size();
      for (auto i = incoming_.begin(); i != incoming_.end();)
        i = ended(*i) ? incoming_.erase(i) : std::next(i);
      for (Outgoing& o : outgoing_) call(o, polled[at++].revents != 0);
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
      if (!socket && (errno == EMFILE || errno == ENFILE))
        engine::fail(engine::Code::kIo,
                     "a connection cannot be accepted: {}; ulimit -n sets how many "
                     "files a process may open",
                     std::generic_category().message(errno));
      if (!socket) return;
      if (!of_this_user(socket)) {
        refuse("a process of another user");
        continue;
      }
      if (incoming_.size() >=
          std::max(kMostStrangers, met_.size())) {  // a flood: drops the oldest without proof
        const auto oldest = std::find_if(incoming_.begin(), incoming_.end(),
                                         [](const Handshake& i) { return !i.proven(); });
        if (oldest != incoming_.end()) incoming_.erase(oldest);
      }
      tune(socket);
      incoming_.push_back(Handshake::accept(
          std::move(socket), invitation_.key,
          [this](int from, int to) { return expected(from, to) != nullptr; },
          Clock::now() + kStrangersTime, end_));
      if (ended(incoming_.back())) incoming_.pop_back();
    }
  }

  void refuse(const std::string& who) {
    ++refused_;
    last_refused_ = who;
  }

  // Returns the pair that rank `from` dials rank `to` for, if it still waits.
  Met* expected(int from, int to) {
    for (Met& m : met_)
      if (m.here == to && m.there == from && m.here > m.there && !m.socket) return &m;
    return nullptr;
  }

  bool ended(Handshake& incoming) {
    switch (incoming.advance()) {
      case Handshake::State::kUnderWay:
        return false;
      case Handshake::State::kRefused:
        refuse(incoming.problem());
        break;
      case Handshake::State::kDone:
        if (Met* pair = expected(incoming.from(), incoming.to()); pair != nullptr) {
          pair->host = incoming.peer_host();
          pair->socket = incoming.take();
        }
    }
    return true;
  }

  void call(Outgoing& o, bool ready) {
    const auto now = Clock::now();
    if (o.handshake) return go_on(o);
    if (!o.connecting) {
      if (now >= o.until) dial(o);
    } else if (ready) {
      int error = 0;
      socklen_t length = sizeof error;
      getsockopt(o.connecting.file(), SOL_SOCKET, SO_ERROR, &error, &length);
      error != 0 ? hang_up(o, std::strerror(error)) : greet(o);
    } else if (now > o.until) {
      hang_up(o, "no connection");
    }
  }

  void dial(Outgoing& o) {
    const Endpoint& to = o.endpoints[o.next];
    o.connecting =
        Socket(::socket(to.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!o.connecting) return hang_up(o, std::strerror(errno));
    if (o.rounds == 0) o.problems[o.next] = o.endpoints[o.next].text + ": no connection";
    o.until = Clock::now() + kConnectTime;
    const int result =
        ::connect(o.connecting.file(), reinterpret_cast<const sockaddr*>(&to.address), to.length);
    if (result == 0) return greet(o);
    if (errno != EINPROGRESS && errno != EINTR) hang_up(o, std::strerror(errno));
  }

  void greet(Outgoing& o) {
    if (!of_this_user(o.connecting)) return hang_up(o, "a process of another user listens there");
    tune(o.connecting);
    if (o.rounds == 0) o.problems[o.next] = o.endpoints[o.next].text + ": no answer";
    // The other side may not have come so far yet. If it has another address, that is tried after a
    // while; each round waits longer than the last.
    const auto until =
        o.endpoints.size() == 1 ? end_ : Clock::now() + kConnectTime * std::min(o.rounds + 1, 5);
    o.handshake = Handshake::dial(std::exchange(o.connecting, {}), invitation_.key,
                                  met_[o.pair].here, met_[o.pair].there, until);
    go_on(o);
  }

  void go_on(Outgoing& o) {
    switch (o.handshake->advance()) {
      case Handshake::State::kUnderWay:
        return;
      case Handshake::State::kRefused:
        return end_attempt(o, o.handshake->problem());
      case Handshake::State::kDone:
        met_[o.pair].host = o.handshake->peer_host();
        met_[o.pair].socket = o.handshake->take();
    }
  }

  void hang_up(Outgoing& o, const char* why) {
    end_attempt(o, fmt::format("{}: {}", o.endpoints[o.next].text, why));
  }

  void end_attempt(Outgoing& o, std::string problem) {
    o.problems[o.next] = std::move(problem);
    o.connecting = Socket();
    o.handshake.reset();
    o.until = Clock::now();
    if (++o.next == o.endpoints.size()) {
      o.next = 0;
      o.until += milliseconds(20) * std::min(++o.rounds, 20);
    }
  }

  [[noreturn]] void give_up() const {
    std::string missing;
    std::vector<int> ranks;
    for (std::size_t i = 0; i < met_.size(); ++i) {
      if (met_[i].socket) continue;
      ranks.push_back(met_[i].there);
      const auto call = std::find_if(outgoing_.begin(), outgoing_.end(),
                                     [&](const Outgoing& o) { return o.pair == i; });
      const std::string why = call == outgoing_.end()
                                  ? "it did not call"
                                  : fmt::format("{}", fmt::join(call->problems, "; "));
      missing += fmt::format("{}rank {} with rank {} ({})", missing.empty() ? "" : "; ",
                             met_[i].here, met_[i].there, why);
    }
    if (refused_ > 0)
      missing += fmt::format("; connections that were refused: {}, the last one from {}", refused_,
                             last_refused_);
    throw engine::Error(engine::Code::kTimeout,
                        fmt::format("no connection within {} s: {}",
                                    double(invitation_.deadline.count()) / 1000, missing),
                        std::move(ranks));
  }

  std::span<const Socket> listeners_;
  const Invitation& invitation_;
  Clock::time_point end_;
  std::vector<Met> met_;
  std::deque<Handshake> incoming_;
  std::vector<Outgoing> outgoing_;
  std::size_t refused_ = 0;
  std::string last_refused_;
};

}  // namespace

std::vector<Met> meet(std::span<const Socket> listeners, const Invitation& invitation) {
  require_possible(invitation.key);
  return Rendezvous(listeners, invitation).run();
}

}  // namespace lockstep::collectives::tcp
