// SPDX-License-Identifier: MIT
// A process manager with PMI gives all processes what the first one tells it. A thread plays the
// manager.
#include "strategies/launchers/pmi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::test {
namespace pmi_test {

using engine::Clock;
using engine::Code;
using engine::Error;
using testing::HasSubstr;

constexpr std::chrono::milliseconds kLong{5000}, kShort{200};

struct Pair {
  Pair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, files.data()), 0); }
  ~Pair() {
    close(files[0]);
    close(files[1]);
  }
  int process() const { return files[0]; }
  int manager() const { return files[1]; }
  std::array<int, 2> files{};
};

std::string read_line(int file) {
  std::string line;
  for (char c = 0; read(file, &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

void write_line(int file, const std::string& line) {
  EXPECT_EQ(write(file, (line + "\n").data(), line.size() + 1), ssize_t(line.size() + 1));
}

// Answers the questions of one process. `kept`: what was put; `others`: returns when all are at the
// barrier.
void serve(int file, std::string& kept, const std::function<void()>& others) {
  for (;;) {
    const std::string line = read_line(file);
    const auto begins = [&](const char* with) { return line.starts_with(with); };
    if (begins("cmd=init ")) {
      write_line(file, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
    } else if (begins("cmd=get_maxes")) {
      write_line(file, "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024");
    } else if (begins("cmd=get_my_kvsname")) {
      write_line(file, "cmd=my_kvsname kvsname=kvs_7_0");
    } else if (begins("cmd=put kvsname=kvs_7_0 key=lockstep-rendezvous value=")) {
      kept = line.substr(line.find("value=") + 6);
      write_line(file, "cmd=put_result rc=0 msg=success");
    } else if (begins("cmd=barrier_in")) {
      others();
      write_line(file, "cmd=barrier_out");
    } else if (begins("cmd=get kvsname=kvs_7_0 key=lockstep-rendezvous")) {
      write_line(file, "cmd=get_result rc=0 msg=success value=" + kept);
    } else {
      EXPECT_EQ(line, "cmd=finalize");
      write_line(file, "cmd=finalize_ack");
      return;
    }
  }
}

TEST(Pmi, GivesAllProcessesTheTextOfTheFirst) {
  const Pair one, two;
  std::string kept;
  std::latch barrier(2);
  std::thread manager([&] {
    std::thread second([&] { serve(two.manager(), kept, [&] { barrier.arrive_and_wait(); }); });
    serve(one.manager(), kept, [&] { barrier.arrive_and_wait(); });
    second.join();
  });
  std::string there;
  std::thread other([&] {
    there = strategies::pmi::from_first(two.process(), false, "/", Clock::now() + kLong);
  });
  EXPECT_EQ(
      strategies::pmi::from_first(one.process(), true, "10.0.0.1:7/secret", Clock::now() + kLong),
      "10.0.0.1:7/secret");
  other.join();
  manager.join();
  EXPECT_EQ(there, "10.0.0.1:7/secret");
}

TEST(Pmi, AManagerThatIsSilentOrWrongOrGoneIsAnError) {
  const auto outcome = [](const std::function<void(int)>& manager) -> std::string {
    const Pair pair;
    std::thread playing([&] { manager(pair.manager()); });
    std::string text = "no error";
    try {
      strategies::pmi::from_first(pair.process(), true, "x", Clock::now() + kShort);
    } catch (const Error& error) {
      text = fmt::format("{}: {}", name(error.code()), error.what());
    }
    playing.join();
    return text;
  };
  EXPECT_THAT(outcome([](int) {}), HasSubstr("timeout: PMI: a process of the job did not come"));
  EXPECT_THAT(outcome([](int file) { write_line(file, "cmd=what"); }),
              HasSubstr("was answered by 'cmd=what'"));
  EXPECT_THAT(outcome([](int file) { write_line(file, "cmd=response_to_init rc=-1"); }),
              HasSubstr("failed: cmd=response_to_init rc=-1"));
  EXPECT_THAT(outcome([](int file) { shutdown(file, SHUT_RDWR); }), HasSubstr("io: PMI: "));
  EXPECT_THAT(outcome([](int file) {
                const std::string endless(20000, 'x');
                EXPECT_GT(write(file, endless.data(), endless.size()), 0);
              }),
              HasSubstr("an answer without an end"));
}

}  // namespace pmi_test
}  // namespace lockstep::test
