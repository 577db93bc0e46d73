// SPDX-License-Identifier: MIT
#include "collectives/tcp/tcp_bootstrap.h"

#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "collectives/memory/shared_hosts.h"
#include "collectives/tcp/control_link.h"
#include "collectives/tcp/names.h"
#include "collectives/tcp/private_socket.h"
#include "collectives/tcp/rendezvous.h"
#include "collectives/tcp/socket.h"
#include "engine/base/error_bytes.h"
#include "engine/base/hash.h"

namespace lockstep::collectives {
namespace {

using engine::Clock;
using engine::Code;
using engine::Error;
using engine::fail;
using engine::require;
using std::chrono::milliseconds;
using tcp::ControlLink;

constexpr milliseconds kDialTime{5000};      // to one set of addresses of a name
constexpr milliseconds kResolvePause{100};   // between attempts to resolve a name
constexpr milliseconds kPoll{20};            // between two looks at `abandon`
constexpr milliseconds kFirstsReason{2000};  // after the deadline, for the first process's error
constexpr milliseconds kFarewell{500};       // to send an error
constexpr std::size_t kSecretBytes = 64;

constexpr std::string_view kPrivate = "unix:";

bool is_private(const std::string& rendezvous) {
  return rendezvous.starts_with(kPrivate);
}

bool always(const ControlLink&) {
  return true;
}

std::uint32_t hash_of(const std::string& what) {
  return std::uint32_t(engine::hash(what));
}

class TcpBootstrap : public Bootstrap {
 public:
  explicit TcpBootstrap(const TcpBootstrapOptions& options)
      : options_(options), links_(std::size_t(options.process == 0 ? options.processes : 1)) {
    require(options.processes >= 1 && options.process >= 0 && options.process < options.processes,
            "process {} of {} does not exist: they are numbered from 0", options.process,
            options.processes);
    // The system vouches for the other end of a private socket.
    if (is_private(options_.rendezvous))
      options_.key = {.job = options_.rendezvous, .secret = std::string(kSecretBytes, '-')};
    options_.process == 0 ? await_others() : reach_first();
    hosts_ =
        shared_hosts(options_.process, [this](const std::string& mine, const std::string& what) {
          return all_gather(mine, what);
        });
  }

  std::string description() const override {
    return fmt::format("a rendezvous at {}", options_.rendezvous);
  }
  int process() const override { return options_.process; }
  int processes() const override { return options_.processes; }
  std::vector<int> hosts() const override { return hosts_; }

  std::vector<std::string> all_gather(const std::string& mine, const std::string& what) override {
    require(mine.size() <= kMostBytes, "{}: {} bytes from one process, {} are the most", what,
            mine.size(), kMostBytes);
    if (broken_) throw Error(*broken_);
    try {
      return options_.process == 0 ? collect(mine, what) : contribute(mine, what);
    } catch (const Error& error) {
      broken_ = error;
      throw;
    }
  }

  std::string secret() const override {
    return is_private(options_.rendezvous) ? std::string() : options_.key.secret;
  }

  void abandon(const Error& why) noexcept override {
    const std::scoped_lock lock(abandoned_mutex_);
    if (!abandoned_) abandoned_ = why;
  }
  void throw_if_abandoned() override {
    const std::scoped_lock lock(abandoned_mutex_);
    if (abandoned_) throw Error(*abandoned_);
  }
  void finish() override {
    {
      const std::scoped_lock lock(abandoned_mutex_);
      if (abandoned_) return;
    }
    if (!broken_) all_gather({}, "the end of the job");
  }

 private:
  // The first process has a number above all others where connections are made, since the lower
  // number dials.
  int first_number() const { return options_.processes; }
  std::vector<std::string> numbered(const std::string& address) const {
    std::vector<std::string> all(std::size_t(options_.processes) + 1);
    all.back() = address;
    return all;
  }
  // Returns the largest frame from the first process: all values and their lengths.
  std::size_t most_of_all() const {
    return std::size_t(options_.processes) * (kMostBytes + sizeof(std::uint32_t));
  }

  void await_others() {
    if (is_private(options_.rendezvous)) {
      const tcp::PrivateListener listener(options_.rendezvous);
      return meet_others({&listener.socket(), 1});
    }
    std::vector<std::string> own = tcp::local_addresses(options_.interface);
    if (options_.announce) {
      const std::vector<tcp::Socket> listeners = tcp::listen_on(own, {});
      options_.rendezvous =
          fmt::format("{}:{}", fmt::join(own, ","), tcp::port_of(listeners.front()));
      options_.announce({options_.rendezvous, options_.key.secret});
      return meet_others(listeners);
    }
    const int port = tcp::host_and_port(options_.rendezvous).port;
    // Debian gives a host's own name the second of these.
    if (options_.interface.empty())
      for (const char* loopback : {"127.0.0.1", "127.0.1.1", "::1"})
        if (std::ranges::find(own, loopback) == own.end()) own.emplace_back(loopback);
    meet_others(tcp::listen_on(own, {port, port}));
  }

  void meet_others(std::span<const tcp::Socket> listeners) {
    tcp::Invitation invitation{.pairs = {},
                               .address = numbered(""),
                               .key = options_.key,
                               .deadline = options_.start_deadline};
    for (int p = 1; p < options_.processes; ++p) invitation.pairs.emplace_back(first_number(), p);
    try {
      for (tcp::Met& met : tcp::meet(listeners, invitation))
        links_[std::size_t(met.there)].emplace(std::move(met.socket), met.host, kMostBytes);
    } catch (const Error& error) {
      if (error.code() != Code::kTimeout) throw;
      const std::string all = error.what();
      const std::size_t refused = all.find("; connections that were refused");
      throw error.with(fmt::format(
          "process{} {} of {} did not reach process 0 {} within {} s{}",
          error.ranks().size() == 1 ? "" : "es", fmt::join(error.ranks(), ", "), options_.processes,
          is_private(options_.rendezvous) ? "on this host" : "at " + options_.rendezvous,
          seconds(options_.start_deadline),
          refused == std::string::npos ? "" : all.substr(refused)));
    }
  }

  void reach_first() {
    if (options_.announce) {
      const Announcement first = options_.announce({});
      options_.rendezvous = first.address;
      if (!first.secret.empty()) options_.key.secret = first.secret;
    }
    const auto end = Clock::now() + options_.start_deadline;
    std::string problem = "not tried";
    while (Clock::now() < end) {
      const auto [address, why] = options_.announce ? tcp::Resolved{options_.rendezvous, {}}
                                                    : tcp::resolved(options_.rendezvous, end);
      if (address.empty()) {
        problem = why;
        std::this_thread::sleep_for(kResolvePause);
        continue;
      }
      const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
      try {
        std::vector<tcp::Met> met =
            tcp::meet({}, {.pairs = {{options_.process, first_number()}},
                           .address = numbered(address),
                           .key = options_.key,
                           .deadline = std::max(milliseconds(1), std::min(left, kDialTime))});
        links_[0].emplace(std::move(met[0].socket), met[0].host, most_of_all());
        return;
      } catch (const Error& error) {
        if (error.code() != Code::kTimeout) throw;
        problem = error.what();
        // Leaves the reason, which is in brackets behind the two numbers.
        const std::size_t begin = problem.find(" ("), end_of_it = problem.rfind(')');
        if (begin < end_of_it) problem = problem.substr(begin + 2, end_of_it - begin - 2);
      }
    }
    std::error_code unreadable;
    if (is_private(options_.rendezvous) &&
        !std::filesystem::exists(options_.rendezvous.substr(kPrivate.size()), unreadable) &&
        !unreadable)
      problem = "it has not been started, or it has ended";
    fail(Code::kTimeout, "process {} of {} did not reach process 0 {} within {} s: {}",
         options_.process, options_.processes,
         is_private(options_.rendezvous) ? "on this host" : "at " + options_.rendezvous,
         seconds(options_.start_deadline), problem);
  }

  static double seconds(milliseconds time) { return double(time.count()) / 1000; }

  // Moves frames until `done` returns true. Throws what `abandon` was given, and Error(kPeerLost)
  // if a connection ends that is `needed`. Returns false at the end of the time.
  template <class Done, class Needed>
  bool move(const Done& done, const Needed& needed, Clock::time_point end,
            const std::string& what) {
    std::vector<pollfd> polled;
    for (;;) {
      throw_if_abandoned();
      for (std::size_t i = 0; i < links_.size(); ++i)
        if (links_[i] && !links_[i]->progress() && !done() && needed(*links_[i])) lost(i, what);
      if (done()) return true;
      if (Clock::now() > end) return false;
      polled.clear();
      for (const auto& link : links_)
        if (link)
          polled.push_back({.fd = link->file(),
                            .events = short(POLLIN | (link->sending() ? POLLOUT : 0)),
                            .revents = 0});
      ::poll(polled.data(), polled.size(), int(kPoll.count()));
    }
  }

  [[noreturn]] void lost(std::size_t link, const std::string& what) {
    const int process = options_.process == 0 ? int(link) : 0;
    const Error why(
        Code::kPeerLost,
        fmt::format("{}: process {} on host {} is gone", what, process, links_[link]->host()),
        {process});
    links_[link].reset();
    tell(why);
    throw Error(why);
  }

  // Tells an error to the others, as far as their connections take it.
  void tell(const Error& why) {
    for (auto& link : links_)
      if (link) link->send(ControlLink::Kind::kError, 0, engine::to_bytes(why));
    const auto end = Clock::now() + kFarewell;
    const auto sent = [&] {
      return std::ranges::none_of(links_, [](const auto& one) { return one && one->sending(); });
    };
    while (!sent() && Clock::now() < end) {
      for (auto& link : links_)
        if (link && !link->progress()) link.reset();
      std::this_thread::sleep_for(milliseconds(1));
    }
  }

  // Collects the values of all processes in the first one, and sends them to all.
  std::vector<std::string> collect(const std::string& mine, const std::string& what) {
    std::vector<std::optional<std::string>> values(links_.size());
    values[0] = mine;
    const auto take = [&] {
      for (std::size_t i = 1; i < links_.size(); ++i) {
        if (!links_[i] || values[i]) continue;
        if (auto frame = links_[i]->receive())
          values[i] = value_of(std::move(*frame), int(i), what);
      }
      return std::ranges::all_of(values, [](const auto& one) { return one.has_value(); });
    };
    try {
      if (!move(take, always, Clock::now() + options_.deadline, what)) {
        std::vector<int> missing;
        for (std::size_t i = 0; i < values.size(); ++i)
          if (!values[i]) missing.push_back(int(i));
        throw Error(Code::kTimeout,
                    fmt::format("exchange of {}: after {} s these processes are missing: {}", what,
                                seconds(options_.deadline), fmt::join(missing, " ")),
                    missing);
      }
    } catch (const Error& error) {
      if (error.code() != Code::kPeerLost) tell(error);
      throw;
    }
    std::string all;
    std::vector<std::string> result;
    for (std::optional<std::string>& value : values) {
      const auto bytes = std::uint32_t(value->size());
      all.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
      all += *value;
      result.push_back(std::move(*value));
    }
    for (std::size_t i = 1; i < links_.size(); ++i)
      links_[i]->send(ControlLink::Kind::kAll, hash_of(what), all);
    const auto sent = [&] {
      return std::ranges::none_of(links_, [](const auto& one) { return one && one->sending(); });
    };
    require_sent(move(
                     sent, [](const ControlLink& link) { return link.sending(); },
                     Clock::now() + options_.deadline, what),
                 what);
    return result;
  }

  void require_sent(bool ok, const std::string& what) const {
    if (!ok)
      fail(Code::kTimeout, "exchange of {}: a process did not take the answer within {} s", what,
           seconds(options_.deadline));
  }

  static std::string value_of(ControlLink::Frame frame, int process, const std::string& what) {
    if (frame.kind == ControlLink::Kind::kError) {
      if (const auto error = engine::read_error(frame.bytes)) throw Error(*error);
    }
    require(frame.kind == ControlLink::Kind::kValue && frame.what == hash_of(what),
            "process 0 exchanges {} while process {} exchanges something else; all must make the "
            "same calls in the same order",
            what, process);
    return std::move(frame.bytes);
  }

  // Sends this process's value to the first one, and returns all.
  std::vector<std::string> contribute(const std::string& mine, const std::string& what) {
    links_[0]->send(ControlLink::Kind::kValue, hash_of(what), mine);
    std::optional<ControlLink::Frame> answer;
    const auto take = [&] {
      if (!answer) answer = links_[0]->receive();
      return answer.has_value();
    };
    // Process 0 may come a deadline later, and knows better who is missing.
    if (!move(take, always, Clock::now() + 2 * options_.deadline + kFirstsReason, what))
      fail(Code::kTimeout, "exchange of {}: process 0 on host {} did not answer within {} s", what,
           links_[0]->host(), seconds(2 * options_.deadline));
    if (answer->kind == ControlLink::Kind::kError) {
      if (const auto error = engine::read_error(answer->bytes)) throw Error(*error);
    }
    require(answer->kind == ControlLink::Kind::kAll && answer->what == hash_of(what),
            "process {} exchanges {} while process 0 exchanges something else; all must make the "
            "same calls in the same order",
            options_.process, what);
    return separated(answer->bytes);
  }

  std::vector<std::string> separated(const std::string& all) const {
    std::vector<std::string> values;
    for (std::size_t at = 0; at + sizeof(std::uint32_t) <= all.size();) {
      std::uint32_t bytes = 0;
      std::memcpy(&bytes, all.data() + at, sizeof bytes);
      at += sizeof bytes;
      require(bytes <= all.size() - at, "process 0 sent values that are cut off");
      values.push_back(all.substr(at, bytes));
      at += bytes;
    }
    require(values.size() == std::size_t(options_.processes), "process 0 sent {} values of {}",
            values.size(), options_.processes);
    return values;
  }

  TcpBootstrapOptions options_;
  // In process 0 by process, empty for itself; elsewhere the one to process 0.
  std::vector<std::optional<ControlLink>> links_;
  std::vector<int> hosts_;
  std::optional<Error> broken_;
  std::mutex abandoned_mutex_;
  std::optional<Error> abandoned_;
};

}  // namespace

std::unique_ptr<Bootstrap> tcp_bootstrap(const TcpBootstrapOptions& options) {
  return std::make_unique<TcpBootstrap>(options);
}

}  // namespace lockstep::collectives
