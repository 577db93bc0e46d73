// SPDX-License-Identifier: MIT
// A peer in another process, for tests of death and silence.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <memory>

#include "test/collectives/tcp/tcp_ranks.h"

namespace lockstep::collectives {

inline constexpr std::size_t kMuch = std::size_t(30) << 20;  // more than the sockets hold

// Runs rank 1 in another process, connected with rank 0 here. It runs `part` and exits; the exit
// code is 3 if `part` throws.
class Peer {
 public:
  explicit Peer(const std::function<void(Transport&)>& part) {
    TcpFabric zero(kLoopback), one(kLoopback);
    const std::vector<std::string> address = {on_loopback(zero), on_loopback(one)};
    pid_ = fork();
    if (pid_ == 0) {
      try {
        const auto transport =
            std::move(one.connect({1}, {{1, 0}}, address, kTestKey, std::chrono::seconds(20))[0]);
        part(*transport);
      } catch (...) {
        _exit(3);
      }
      _exit(0);
    }
    transport_ =
        std::move(zero.connect({0}, {{0, 1}}, address, kTestKey, std::chrono::seconds(20))[0]);
  }
  ~Peer() { end(SIGKILL); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  Transport& transport() { return *transport_; }
  void signal(int number) const { ::kill(pid_, number); }
  int end(int number) {
    if (pid_ < 0) return -1;
    if (number != 0) signal(number);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  std::unique_ptr<Transport> transport_;
};

}  // namespace lockstep::collectives
