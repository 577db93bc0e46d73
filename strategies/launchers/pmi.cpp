// SPDX-License-Identifier: MIT
#include "strategies/launchers/pmi.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "engine/base/brief.h"

namespace lockstep::strategies::pmi {
namespace {

using engine::Clock;
using engine::Code;
using engine::fail;

constexpr std::size_t kMostLine = 4096;
constexpr char kKey[] = "lockstep-rendezvous";

class Manager {
 public:
  Manager(int file, Clock::time_point deadline) : file_(file), deadline_(deadline) {}

  // Sends a line, and returns the answer, which must begin with cmd=`answer`.
  std::string ask(const std::string& line, const std::string& answer) {
    write(line + "\n");
    const std::string got = read_line();
    const std::string command = line.substr(0, line.find(' '));  // the rest may be secret
    if (!got.starts_with("cmd=" + answer))
      fail(Code::kIo, "PMI: '{}' was answered by '{}'", command, engine::brief(got));
    const std::string rc = value(got, "rc");
    if (!rc.empty() && rc != "0")
      fail(Code::kIo, "PMI: '{}' failed: {}", command, engine::brief(got));
    return got;
  }

  // Returns the value of a key in a line "cmd=get_result rc=0 value=abc"; empty if it has none.
  static std::string value(const std::string& line, const std::string& key) {
    const std::size_t at = line.find(" " + key + "=");
    if (at == std::string::npos) return {};
    const std::size_t begin = at + key.size() + 2;
    return line.substr(begin, line.find(' ', begin) - begin);
  }

 private:
  void await(short events) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
    pollfd polled{.fd = file_, .events = events, .revents = 0};
    const int found = ::poll(&polled, 1, int(std::max<std::int64_t>(0, left.count())));
    if (found == 0) fail(Code::kTimeout, "PMI: a process of the job did not come in time");
    if (found < 0 && errno != EINTR) fail(Code::kIo, "PMI: {}", std::strerror(errno));
  }

  void write(const std::string& text) {
    for (std::size_t sent = 0; sent < text.size();) {
      await(POLLOUT);
      const ssize_t wrote = ::send(file_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (wrote < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (wrote < 0) fail(Code::kIo, "PMI: {}", std::strerror(errno));
      sent += std::size_t(wrote);
    }
  }

  std::string read_line() {
    for (;;) {
      const std::size_t end = received_.find('\n');
      if (end != std::string::npos) {
        const std::string line = received_.substr(0, end);
        received_.erase(0, end + 1);
        return line;
      }
      if (received_.size() > kMostLine) fail(Code::kIo, "PMI: an answer without an end");
      await(POLLIN);
      std::array<char, kMostLine> piece;
      const ssize_t got = ::read(file_, piece.data(), piece.size());
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got <= 0)
        fail(Code::kIo, "PMI: the process manager closed the connection{}{}", got < 0 ? ": " : "",
             got < 0 ? std::strerror(errno) : "");
      received_.append(piece.data(), std::size_t(got));
    }
  }

  int file_;
  Clock::time_point deadline_;
  std::string received_;
};

}  // namespace

std::string from_first(int file, bool first, const std::string& text,
                       engine::Clock::time_point deadline) {
  Manager manager(file, deadline);
  manager.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init");
  const std::string most = Manager::value(manager.ask("cmd=get_maxes", "maxes"), "vallen_max");
  if (first && !most.empty() && text.size() >= std::strtoul(most.c_str(), nullptr, 10))
    fail(Code::kIo,
         "PMI keeps values of {} bytes, and the addresses of this host need {}: name one "
         "network with --interface",
         most, text.size());
  const std::string space =
      Manager::value(manager.ask("cmd=get_my_kvsname", "my_kvsname"), "kvsname");
  if (first)
    manager.ask(fmt::format("cmd=put kvsname={} key={} value={}", space, kKey, text), "put_result");
  manager.ask("cmd=barrier_in", "barrier_out");
  const std::string got = Manager::value(
      manager.ask(fmt::format("cmd=get kvsname={} key={}", space, kKey), "get_result"), "value");
  manager.ask("cmd=finalize", "finalize_ack");
  return got;
}

}  // namespace lockstep::strategies::pmi
