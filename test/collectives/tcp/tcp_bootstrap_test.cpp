// SPDX-License-Identifier: MIT
// Processes find each other over TCP. Threads play the processes, on loopback.
#include "collectives/tcp/tcp_bootstrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "collectives/tcp/names.h"
#include "collectives/tcp/private_socket.h"
#include "collectives/tcp/socket.h"

// The address sanitizer defines it; it is null in other builds.
extern "C" [[gnu::weak]] void __asan_init();

namespace lockstep::test {
namespace tcp_bootstrap_test {

using collectives::Bootstrap;
using collectives::TcpBootstrapOptions;
using engine::Clock;
using engine::Code;
using engine::Error;
using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

const std::string kSecret(64, 's');

int free_port() {
  return collectives::tcp::port_of(collectives::tcp::listen_on({"127.0.0.1"}, {})[0]);
}

struct Outcome {
  std::vector<std::string> errors;  // one per process; empty if it threw nothing
  double seconds = 0;
};

// Runs `body` in a thread per process. `change` may change the options of a process, or return
// false to leave it out.
Outcome run(int processes, const std::function<void(Bootstrap&)>& body,
            const std::function<bool(TcpBootstrapOptions&)>& change = {}) {
  const std::string rendezvous = fmt::format("127.0.0.1:{}", free_port());
  Outcome outcome;
  outcome.errors.resize(std::size_t(processes));
  const auto begin = Clock::now();
  std::vector<std::thread> threads;
  for (int p = 0; p < processes; ++p)
    threads.emplace_back([&, p] {
      try {
        TcpBootstrapOptions options{.process = p,
                                    .processes = processes,
                                    .rendezvous = rendezvous,
                                    .key = {.job = "test", .secret = kSecret},
                                    .start_deadline = milliseconds(20000),
                                    .deadline = milliseconds(20000)};
        if (change && !change(options)) return;
        const auto bootstrap = collectives::tcp_bootstrap(options);
        if (body) body(*bootstrap);
      } catch (const Error& error) {
        outcome.errors[std::size_t(p)] = fmt::format("{}: {}", name(error.code()), error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  outcome.seconds = engine::seconds_since(begin);
  return outcome;
}

TEST(TcpBootstrap, GathersTheValuesOfAllInTheirOrder) {
  for (const int processes : {1, 2, 5}) {
    const Outcome outcome = run(processes, [&](Bootstrap& mine) {
      EXPECT_EQ(mine.hosts(), std::vector<int>(std::size_t(processes), 0));
      for (int round = 0; round < 50; ++round) {
        const auto all = mine.all_gather(std::to_string(mine.process() * 1000 + round), "numbers");
        ASSERT_EQ(all.size(), std::size_t(processes));
        for (int p = 0; p < processes; ++p)
          EXPECT_EQ(all[std::size_t(p)], std::to_string(p * 1000 + round));
      }
      mine.finish();
    });
    for (const std::string& error : outcome.errors) EXPECT_EQ(error, "");
  }
}

// Processes of one user and host meet without a secret, also where a job died before.
TEST(TcpBootstrap, MeetsAtAPrivateSocket) {
  const std::string address = collectives::tcp::private_address(fmt::format("test-{}", ::getpid()));
  for (const bool stale : {false, true}) {
    if (stale) {
      collectives::tcp::PrivateListener dead(address);
      EXPECT_THROW(collectives::tcp::PrivateListener second(address), Error);
      // A killed process leaves the file, which nobody listens at.
      const std::string path = address.substr(address.find(':') + 1);
      std::filesystem::rename(path, path + ".kept");
      std::filesystem::create_hard_link(path + ".kept", path);
      std::filesystem::remove(path + ".kept");
    }
    const Outcome outcome = run(
        3,
        [](Bootstrap& mine) {
          EXPECT_EQ(mine.secret(), "");
          EXPECT_EQ(mine.hosts(), (std::vector<int>{0, 0, 0}));
          EXPECT_EQ(mine.all_gather(std::to_string(mine.process()), "numbers"),
                    (std::vector<std::string>{"0", "1", "2"}));
          mine.finish();
        },
        [&](TcpBootstrapOptions& options) {
          options.rendezvous = address;
          options.key = {};
          return true;
        });
    for (const std::string& error : outcome.errors) EXPECT_EQ(error, "");
  }
  EXPECT_FALSE(std::filesystem::exists(address.substr(address.find(':') + 1)));
}

// At a private socket a message to process 0, which has ended with its error, fails at once.
TEST(TcpBootstrap, WhoComesLaterIsToldWhoLeft) {
  const Outcome outcome = run(
      3,
      [](Bootstrap& mine) {
        if (mine.process() == 2) return;
        if (mine.process() == 1) std::this_thread::sleep_for(milliseconds(300));
        mine.all_gather("x", "numbers");
      },
      [&](TcpBootstrapOptions& options) {
        options.rendezvous =
            collectives::tcp::private_address(fmt::format("test-left-{}", ::getpid()));
        options.key = {};
        return true;
      });
  EXPECT_THAT(outcome.errors[0], testing::HasSubstr("process 2"));
  EXPECT_THAT(outcome.errors[1], testing::HasSubstr("process 2"));
}

// Connections without a proof neither take part nor delay those that have one.
TEST(TcpBootstrap, StrangersAreRefusedAndDelayNobody) {
  std::atomic<bool> over = false;
  std::vector<std::jthread> strangers;
  const auto disturb = [&](const std::string& rendezvous) {
    for (int stranger = 0; stranger < 4; ++stranger)
      strangers.emplace_back([&, rendezvous, stranger] {
        std::vector<collectives::tcp::Socket> open;
        while (!over && open.size() < 250) {
          try {
            open.push_back(collectives::tcp::connect_to(rendezvous, Clock::now()));
          } catch (const Error&) {  // nobody listens yet, or any more
            std::this_thread::sleep_for(milliseconds(1));
            continue;
          }
          const std::string garbage(std::size_t(stranger) * 100, char('0' + stranger));
          [[maybe_unused]] const auto sent =
              ::send(open.back().file(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
        }
      });
  };
  std::string at;
  std::once_flag once;
  const Outcome outcome = run(
      3, [](Bootstrap& mine) { mine.all_gather("x", "the start"); },
      [&](TcpBootstrapOptions& options) {
        std::call_once(once, [&] { disturb(options.rendezvous); });
        if (options.process != 0) std::this_thread::sleep_for(milliseconds(300));
        return true;
      });
  over = true;
  for (const std::string& error : outcome.errors) EXPECT_EQ(error, "");
  EXPECT_LT(outcome.seconds, 2);
}

// Each process has a thread here; the connections need a file at both ends.
TEST(TcpBootstrap, AThousandMeetWithinSeconds) {
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit before = files;
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 8192);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_cur < 4096) GTEST_SKIP() << "needs 4096 open files";
  const int processes = __asan_init == nullptr ? 1024 : 128;  // it takes ten times as long
  const Outcome outcome = run(processes, [&](Bootstrap& mine) {
    EXPECT_EQ(mine.all_gather("x", "the start").size(), std::size_t(processes));
    mine.finish();
  });
  setrlimit(RLIMIT_NOFILE, &before);
  for (const std::string& error : outcome.errors) EXPECT_EQ(error, "");
  EXPECT_LT(outcome.seconds, 10);
}

// The others learn address and secret of the first process by other means.
TEST(TcpBootstrap, MeetsWhereTheFirstProcessIsAnnounced) {
  std::promise<collectives::Announcement> announced;
  const std::shared_future<collectives::Announcement> known = announced.get_future().share();
  const Outcome outcome = run(
      3,
      [](Bootstrap& mine) {
        EXPECT_EQ(mine.secret(), kSecret);
        mine.all_gather("x", "the start");
        mine.finish();
      },
      [&](TcpBootstrapOptions& options) {
        options.rendezvous.clear();
        if (options.process != 0) options.key.secret = std::string(64, '?');
        options.announce = [&, first = options.process == 0](const auto& mine) {
          if (first) announced.set_value(mine);
          return known.get();
        };
        return true;
      });
  for (const std::string& error : outcome.errors) EXPECT_EQ(error, "");
}

// A value has at most a megabyte, and the answer is that of all.
TEST(TcpBootstrap, CarriesTheLargestValuesAndRefusesLargerOnes) {
  const Outcome outcome = run(3, [](Bootstrap& mine) {
    const std::string large(Bootstrap::kMostBytes, char('a' + mine.process()));
    const auto all = mine.all_gather(large, "large values");
    for (int p = 0; p < 3; ++p)
      EXPECT_EQ(all[std::size_t(p)], std::string(Bootstrap::kMostBytes, char('a' + p)));
    EXPECT_THROW(mine.all_gather(large + "x", "larger values"), Error);
    mine.finish();
  });
  for (const std::string& error : outcome.errors) EXPECT_EQ(error, "");
}

TEST(TcpBootstrap, NamesTheProcessesThatDoNotCome) {
  const Outcome outcome = run(4, {}, [](TcpBootstrapOptions& options) {
    options.start_deadline = milliseconds(700);
    return options.process != 1 && options.process != 3;
  });
  EXPECT_THAT(outcome.errors[0],
              AllOf(HasSubstr("timeout: processes 1, 3 of 4 did not reach process 0 at 127.0.0.1:"),
                    testing::EndsWith(" within 0.7 s")));
  EXPECT_NE(outcome.errors[2], "");
  EXPECT_LT(outcome.seconds, 10);
}

TEST(TcpBootstrap, TheOthersNameTheFirstProcessIfItDoesNotCome) {
  const Outcome outcome = run(3, {}, [](TcpBootstrapOptions& options) {
    options.start_deadline = milliseconds(300);
    return options.process != 0;
  });
  for (const std::size_t p : {1, 2})
    EXPECT_THAT(
        outcome.errors[p],
        AllOf(HasSubstr(fmt::format("timeout: process {} of 3 did not reach process 0 at ", p)),
              Not(HasSubstr("with rank"))));
}

TEST(TcpBootstrap, AnotherSecretIsRefusedAndDelaysNobody) {
  const Outcome outcome = run(3, {}, [](TcpBootstrapOptions& options) {
    options.start_deadline = milliseconds(1500);
    if (options.process == 2) options.key.secret = std::string(64, 'x');
    return true;
  });
  EXPECT_THAT(outcome.errors[0],
              AllOf(HasSubstr("process 2 of 3 did not reach process 0"), HasSubstr("refused")));
  EXPECT_THAT(outcome.errors[2], HasSubstr("timeout: process 2 of 3 did not reach process 0"));
}

TEST(TcpBootstrap, NamesALateProcessToAllAndFailsAtOnceAfterThat) {
  const Outcome outcome = run(
      3,
      [](Bootstrap& mine) {
        if (mine.process() == 1) {
          std::this_thread::sleep_for(milliseconds(1500));
          return;
        }
        for (int again = 0; again < 2; ++again) {
          const auto begin = Clock::now();
          try {
            mine.all_gather("x", "addresses");
            ADD_FAILURE() << "process 1 was missing";
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), Code::kTimeout);
            EXPECT_STREQ(error.what(),
                         "exchange of addresses: after 0.5 s these processes are missing: 1");
          }
          EXPECT_LT(engine::seconds_since(begin), again == 0 ? 1.4 : 0.1);
        }
      },
      [](TcpBootstrapOptions& options) {
        options.deadline = milliseconds(500);
        return true;
      });
  for (const std::string& error : outcome.errors) EXPECT_EQ(error, "");
}

TEST(TcpBootstrap, TheEndOfAProcessEndsAllExchangesAtOnce) {
  for (const int dead : {0, 2}) {
    const Outcome outcome = run(3, [&](Bootstrap& mine) {
      mine.all_gather("", "the start");
      if (mine.process() != dead) mine.all_gather("x", "addresses");
    });
    for (int p = 0; p < 3; ++p) {
      if (p == dead) continue;
      EXPECT_THAT(outcome.errors[std::size_t(p)],
                  AllOf(HasSubstr("peer lost: addresses: process "), HasSubstr(" is gone")));
    }
    EXPECT_LT(outcome.seconds, 5);
  }
}

TEST(TcpBootstrap, DifferentCallsAreAnErrorOfAll) {
  const Outcome outcome = run(3, [](Bootstrap& mine) {
    mine.all_gather("x", mine.process() == 1 ? "one thing" : "another thing");
  });
  for (const std::string& error : outcome.errors)
    EXPECT_THAT(error, HasSubstr("all must make the same calls in the same order"));
}

TEST(TcpBootstrap, AbandonEndsAWait) {
  const Outcome outcome = run(2, [](Bootstrap& mine) {
    if (mine.process() == 1) {
      std::this_thread::sleep_for(milliseconds(300));
      return;
    }
    std::jthread other([&] {
      std::this_thread::sleep_for(milliseconds(50));
      mine.abandon(Error(Code::kPeerLost, "a process died"));
    });
    const auto begin = Clock::now();
    try {
      mine.all_gather("x", "addresses");
      ADD_FAILURE() << "nobody else came";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "a process died");
    }
    EXPECT_LT(engine::seconds_since(begin), 0.25);
    EXPECT_THROW(mine.throw_if_abandoned(), Error);
  });
  for (const std::string& error : outcome.errors) EXPECT_EQ(error, "");
}

TEST(TcpBootstrap, RefusesWhatCannotBe) {
  for (const char* rendezvous : {"", "127.0.0.1", ":29500", "127.0.0.1:", "127.0.0.1:0",
                                 "127.0.0.1:70000", "127.0.0.1:29500x", "[]:29500"}) {
    const Outcome outcome = run(2, {}, [&](TcpBootstrapOptions& options) {
      options.rendezvous = rendezvous;
      return true;
    });
    for (const std::string& error : outcome.errors)
      EXPECT_THAT(error, HasSubstr("must be an address and a port")) << rendezvous;
  }
  const Outcome outcome = run(1, {}, [](TcpBootstrapOptions& options) {
    options.process = 1;
    return true;
  });
  EXPECT_THAT(outcome.errors[0], HasSubstr("process 1 of 1 does not exist"));
}

// A name that never resolves is asked for until the deadline.
TEST(TcpBootstrap, ANameThatDoesNotResolveIsSaid) {
  const Outcome outcome = run(2, {}, [](TcpBootstrapOptions& options) {
    options.rendezvous = "no-such-host.invalid:29500";
    options.start_deadline = milliseconds(400);
    return options.process == 1;
  });
  EXPECT_THAT(outcome.errors[1], HasSubstr("no-such-host.invalid"));
}

}  // namespace tcp_bootstrap_test
}  // namespace lockstep::test
