// SPDX-License-Identifier: MIT
#include "collectives/run/peer_watch.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

using engine::Code;
using engine::fail;

// Owns a file descriptor and closes it at the end.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const { return number_; }

 private:
  int number_;
};

struct Watched {
  PeerProcess peer;
  Descriptor file;  // -1: gone before it could be watched
};

}  // namespace

struct PeerWatch::State {
  explicit State(Lost callback)
      : lost(std::move(callback)), bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (bell.number() < 0) fail(Code::kIo, "cannot watch processes: {}", std::strerror(errno));
    thread = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  }
  ~State() {
    thread.request_stop();
    ring();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void ring() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(bell.number(), &one, sizeof one);
  }

  // Watches the processes in `mine`, which only this thread uses. Others put new ones into `added`
  // and ring.
  void watch(const std::stop_token& stop) {
    std::vector<Watched> mine;
    std::vector<pollfd> polled;
    while (!stop.stop_requested()) {
      {
        const std::lock_guard lock(mutex);
        for (Watched& w : added) mine.push_back(std::move(w));
        added.clear();
        if (released) mine.clear();
      }
      polled.assign(1, {.fd = bell.number(), .events = POLLIN, .revents = 0});
      bool gone = false;
      for (const Watched& w : mine) {
        polled.push_back({.fd = w.file.number(), .events = POLLIN, .revents = 0});
        gone = gone || w.file.number() < 0;
      }
      if (poll(polled.data(), polled.size(), gone ? 0 : -1) < 0) continue;  // EINTR
      if (polled[0].revents != 0) {
        std::uint64_t rings = 0;
        [[maybe_unused]] const auto read = ::read(bell.number(), &rings, sizeof rings);
      }
      std::vector<Watched> still;
      for (std::size_t i = 0; i < mine.size(); ++i) {
        if (mine[i].file.number() < 0 || polled[i + 1].revents != 0)
          tell(mine[i]);
        else
          still.push_back(std::move(mine[i]));
      }
      mine = std::move(still);
    }
  }

  void tell(const Watched& w) {
    {
      const std::lock_guard lock(mutex);
      if (released) return;
    }
    lost(w.peer);
  }

  Lost lost;
  Descriptor bell;
  std::mutex mutex;
  std::vector<Watched> added;
  bool released = false;
  std::jthread thread;  // last: joined before what it uses ends
};

std::string name(const PeerProcess& peer) {
  if (peer.ranks.empty()) return "this process";
  const int first = peer.ranks.front(), last = peer.ranks.back();
  return first == last ? fmt::format("rank {}", first) : fmt::format("ranks {} to {}", first, last);
}

engine::Error death(const PeerProcess& peer, std::string_view prefix, std::string_view suffix) {
  return {Code::kPeerLost,
          fmt::format("{}{} (pid {}) died{}", prefix, name(peer), peer.pid, suffix), peer.ranks};
}

PeerWatch::PeerWatch(Lost lost) : state_(std::make_unique<State>(std::move(lost))) {}
PeerWatch::~PeerWatch() = default;

void PeerWatch::add(const PeerProcess& peer) {
  const auto file = int(syscall(SYS_pidfd_open, peer.pid, 0));
  if (file < 0 && errno != ESRCH) {
    fail(Code::kIo, "cannot watch {} (pid {}): {}; it needs pidfd_open, Linux 5.3 or newer",
         name(peer), peer.pid, std::strerror(errno));
  }
  Watched watched{peer, Descriptor(file)};
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->released) return;
    state_->added.push_back(std::move(watched));
  }
  state_->ring();
}

void PeerWatch::release() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->released = true;
  }
  state_->ring();
}

}  // namespace lockstep::collectives
