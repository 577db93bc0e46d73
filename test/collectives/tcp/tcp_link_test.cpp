// SPDX-License-Identifier: MIT
// Two processes in two network namespaces are joined by a virtual cable that is pulled. No end of
// file announces the silence. The tests need root.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <thread>

#include "engine/base/error.h"
#include "test/collectives/tcp/tcp_ranks.h"
#include "test/support/events.h"

namespace lockstep::collectives {
namespace tcp_link_test {

using namespace std::chrono_literals;
using engine::Clock;
using engine::Code;
using engine::Error;

constexpr int kOk = 0, kWrong = 1, kNoNamespaces = 77;

bool shell(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

// Passes lines between two processes; an end of file is an empty line.
class Line {
 public:
  Line() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends_), 0); }
  ~Line() {
    for (const int end : ends_) close(end);
  }
  void say(int side, const std::string& text) const {
    const std::string line = text + "\n";
    EXPECT_EQ(write(ends_[side], line.data(), line.size()), ssize_t(line.size()));
  }
  std::string hear(int side) const {
    std::string text;
    for (char c = 0; read(ends_[side], &c, 1) == 1 && c != '\n';) text += c;
    return text;
  }

 private:
  int ends_[2] = {-1, -1};
};

using Part = std::function<int(Transport&, const Line& line, const std::string& device)>;

// Runs rank `me` (0 or 1) in its own namespace. The parent moves the end of the cable into it.
int rank_main(int me, const Line& parent, const Line& peer, const std::string& device,
              const Part& part) {
  if (unshare(CLONE_NEWNET) != 0) return kNoNamespaces;
  parent.say(1, "ready");
  if (parent.hear(1) != "go") return kNoNamespaces;
  if (!shell(
          fmt::format("ip addr add 10.77.0.{}/24 dev {} && ip link set {} up && ip link set lo up",
                      me + 1, device, device))) {
    return kNoNamespaces;
  }
  TcpFabric fabric;
  peer.say(me, fabric.address());
  const std::string theirs = peer.hear(me);
  const std::vector<std::string> address =
      me == 0 ? std::vector{fabric.address(), theirs} : std::vector{theirs, fabric.address()};
  const auto transport = std::move(fabric.connect({me}, {{me, 1 - me}}, address, kTestKey, 20s)[0]);
  return part(*transport, peer, device);
}

// Returns the exit codes of both ranks. Each has its end of the cable as `device`.
std::vector<int> play(const Part& zero, const Part& one) {
  const Line peer, to_zero, to_one;
  const Line* const parents[] = {&to_zero, &to_one};
  const std::string devices[] = {fmt::format("lsa{}", getpid()), fmt::format("lsb{}", getpid())};
  pid_t children[2];
  for (const int me : {0, 1}) {
    children[me] = fork();
    if (children[me] != 0) continue;
    int code = kWrong;
    try {
      code = rank_main(me, *parents[me], peer, devices[me], me == 0 ? zero : one);
    } catch (const std::exception& error) {
      fmt::print(stderr, "rank {}: {}\n", me, error.what());
    }
    std::fflush(stderr);
    _exit(code);
  }
  bool ok = to_zero.hear(0) == "ready" && to_one.hear(0) == "ready";
  ok = ok && shell(fmt::format("ip link add {} type veth peer name {}", devices[0], devices[1]));
  for (const int me : {0, 1})
    ok = ok && shell(fmt::format("ip link set {} netns {}", devices[me], children[me]));
  for (const Line* parent : parents) parent->say(0, ok ? "go" : "stop");
  std::vector<int> codes;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : kWrong);
  }
  return codes;
}

// Holds the state of a connection of this namespace, as the kernel reports it.
struct Queue {
  std::size_t unacknowledged = 0;  // bytes
  // The window of the other side is closed, and the kernel probes it now and then.
  bool window_closed = false;
};
std::vector<Queue> queues() {
  constexpr unsigned kEstablished = 1, kProbesTheWindow = 4;
  std::vector<Queue> all;
  std::ifstream file("/proc/self/net/tcp");
  std::string line;
  while (std::getline(file, line)) {
    unsigned state = 0, timer = 0;
    std::size_t unacknowledged = 0;
    if (std::sscanf(line.c_str(), " %*d: %*s %*s %x %zx:%*x %x:", &state, &unacknowledged,
                    &timer) == 3 &&
        state == kEstablished)
      all.push_back({unacknowledged, timer == kProbesTheWindow});
  }
  return all;
}

bool nothing_is_on_its_way() {
  return std::ranges::all_of(queues(), [](const Queue& q) { return q.unacknowledged == 0; });
}

// Pulls the cable when the other rank says so, and lives until it is told to end.
int pull_the_cable(Transport&, const Line& line, const std::string& device) {
  line.hear(1);
  if (!test::await(nothing_is_on_its_way)) return kWrong;
  if (!shell(fmt::format("ip link set {} down", device))) return kWrong;
  line.say(1, "down");
  line.hear(1);
  return kOk;
}

// Waits for the loss of the peer, which must come long before `wait_until` would give up.
int notices(Transport& transport, const Line& line, const std::function<bool()>& through) {
  int code = kWrong;
  const auto begin = Clock::now();
  try {
    wait_until(transport, through);
    fmt::print(stderr, "the cable is gone and nobody noticed\n");
  } catch (const Error& error) {
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    fmt::print(stderr, "after {:.1f} s: {}\n", seconds, error.what());
    code = error.code() == Code::kPeerLost && std::string(error.what()).find("rank 1 on host") == 0
               ? kOk
               : kWrong;
  }
  line.say(0, "end");
  return code;
}

class TcpLink : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    if (!shell("ip -V")) GTEST_SKIP() << "ip (iproute2) is missing";
  }
  static void play_against_the_cable(const Part& zero) {
    const std::vector<int> codes = play(zero, pull_the_cable);
    if (codes[0] == kNoNamespaces || codes[1] == kNoNamespaces)
      GTEST_SKIP() << "no network namespaces here";
    EXPECT_EQ(codes, (std::vector<int>{kOk, kOk}));
  }
};

TEST_F(TcpLink, SilenceIsNoticedWhileWeWait) {
  play_against_the_cable([](Transport& transport, const Line& line, const std::string&) {
    std::byte data{};
    const int request = transport.post_receive(1, 1, &data, 1);
    if (!test::await(nothing_is_on_its_way)) return kWrong;
    line.say(0, "pull");
    line.hear(0);
    return notices(transport, line, [&] { return transport.test(request); });
  });
}

TEST_F(TcpLink, SilenceIsNoticedWhileWeSend) {
  play_against_the_cable([](Transport& transport, const Line& line, const std::string&) {
    line.say(0, "pull");
    line.hear(0);
    const std::vector<std::byte> data(std::size_t(30) << 20);
    const int request = transport.post_send(1, 1, data.data(), data.size());
    return notices(transport, line, [&] { return transport.test(request); });
  });
}

// Silence is noticed behind a closed window. The peer does not read, so that its window closes;
// then the cable is pulled.
TEST_F(TcpLink, SilenceIsNoticedBehindAClosedWindow) {
  play_against_the_cable([](Transport& transport, const Line& line, const std::string&) {
    const std::vector<std::byte> data(std::size_t(30) << 20);
    const int request = transport.post_send(1, 1, data.data(), data.size());
    wait_until(transport, [] {
      return std::ranges::any_of(queues(), [](const Queue& q) { return q.window_closed; });
    });
    line.say(0, "pull");
    line.hear(0);
    return notices(transport, line, [&] { return transport.test(request); });
  });
}

// A short interruption is no loss: lost data is sent again.
TEST_F(TcpLink, AnInterruptionOfASecondIsNoLoss) {
  const std::vector<int> codes = play(
      [](Transport& transport, const Line& line, const std::string&) {
        line.say(0, "pull");
        line.hear(0);
        const std::vector<std::byte> data(std::size_t(1) << 20, std::byte{3});
        const int request = transport.post_send(1, 1, data.data(), data.size());
        std::byte thanks{};
        wait_for(transport, request);
        wait_for(transport, transport.post_receive(1, 2, &thanks, 1));
        return thanks == std::byte{4} ? kOk : kWrong;
      },
      [](Transport& transport, const Line& line, const std::string& device) {
        line.hear(1);
        if (!shell(fmt::format("ip link set {} down", device))) return kWrong;
        line.say(1, "down");
        std::this_thread::sleep_for(1s);
        if (!shell(fmt::format("ip link set {} up", device))) return kWrong;
        std::vector<std::byte> data(std::size_t(1) << 20);
        wait_for(transport, transport.post_receive(0, 1, data.data(), data.size()));
        std::byte thanks{4};
        wait_for(transport, transport.post_send(0, 2, &thanks, 1));
        return data == std::vector<std::byte>(data.size(), std::byte{3}) ? kOk : kWrong;
      });
  if (codes[0] == kNoNamespaces || codes[1] == kNoNamespaces)
    GTEST_SKIP() << "no network namespaces here";
  EXPECT_EQ(codes, (std::vector<int>{kOk, kOk}));
}

}  // namespace tcp_link_test
}  // namespace lockstep::collectives
