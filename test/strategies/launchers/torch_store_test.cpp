// SPDX-License-Identifier: MIT
// The store of torchrun's agent gives all processes what the first one sets. A thread plays the
// store.
#include "strategies/launchers/torch_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "collectives/tcp/socket.h"

namespace lockstep::test {
namespace torch_store_test {

using engine::Clock;
using engine::Error;
using strategies::torch_store::from_first;
using testing::HasSubstr;

constexpr std::chrono::milliseconds kLong{5000}, kShort{300};

template <class Number>
Number number(int file) {
  Number value{};
  EXPECT_EQ(recv(file, &value, sizeof value, MSG_WAITALL), ssize_t(sizeof value));
  return value;
}

std::string text(int file) {
  std::string value(number<std::uint64_t>(file), '\0');
  if (!value.empty()) {
    EXPECT_EQ(recv(file, value.data(), value.size(), MSG_WAITALL), ssize_t(value.size()));
  }
  return value;
}

template <class Number>
void reply(int file, Number value) {
  EXPECT_EQ(send(file, &value, sizeof value, MSG_NOSIGNAL), ssize_t(sizeof value));
}

// Accepts connections, and plays each in a thread.
class Agent {
 public:
  explicit Agent(std::function<void(int file)> play)
      : listener_(std::move(collectives::tcp::listen_on({"127.0.0.1"}, {})[0])),
        thread_([this, play](const std::stop_token& stop) {
          std::vector<std::jthread> each;
          while (!stop.stop_requested()) {
            pollfd polled{.fd = listener_.file(), .events = POLLIN, .revents = 0};
            if (poll(&polled, 1, 10) != 1) continue;
            const int file = accept(listener_.file(), nullptr, nullptr);
            each.emplace_back([play, file] {
              play(file);
              close(file);
            });
          }
        }) {}
  std::string address() const {
    return fmt::format("localhost:{}", collectives::tcp::port_of(listener_));
  }

 private:
  collectives::tcp::Socket listener_;
  std::jthread thread_;
};

TEST(TorchStore, GivesAllProcessesTheValueOfTheFirst) {
  std::mutex mutex;
  std::condition_variable set;
  std::map<std::string, std::string> values;
  const Agent agent([&](int file) {
    EXPECT_EQ(number<std::uint8_t>(file), 0);
    EXPECT_EQ(number<std::uint32_t>(file), 0x3C85F7CEu);
    for (std::uint8_t query = 0; recv(file, &query, 1, 0) == 1;) {
      if (query == 6) {
        EXPECT_EQ(number<std::uint64_t>(file), 1u);
      }
      const std::string key = text(file);
      std::unique_lock lock(mutex);
      if (query == 1) {
        values[key] = text(file);
        set.notify_all();
      } else if (query == 6) {
        set.wait(lock, [&] { return values.contains(key); });
        reply(file, std::uint8_t(0));
      } else {
        EXPECT_EQ(query, 3);
        reply(file, std::uint64_t(values[key].size()));
        EXPECT_GT(send(file, values[key].data(), values[key].size(), MSG_NOSIGNAL), 0);
      }
    }
  });
  std::string there;
  std::thread other(
      [&] { there = from_first(agent.address(), "lockstep/a", false, "", Clock::now() + kLong); });
  EXPECT_EQ(from_first(agent.address(), "lockstep/a", true, "10.0.0.1:7", Clock::now() + kLong),
            "10.0.0.1:7");
  other.join();
  EXPECT_EQ(there, "10.0.0.1:7");
}

TEST(TorchStore, AnAgentThatIsSilentOrWrongOrGoneIsAnError) {
  const auto outcome = [](const std::function<void(int)>& play) -> std::string {
    const Agent agent(play);
    try {
      from_first(agent.address(), "k", false, "", Clock::now() + kShort);
    } catch (const Error& error) {
      return fmt::format("{}: {}", name(error.code()), error.what());
    }
    return "no error";
  };
  const auto later = [](int file) {
    pollfd polled{.fd = file, .events = 0, .revents = 0};
    poll(&polled, 1, int(2 * kShort.count()));  // until the other side leaves
  };
  EXPECT_THAT(outcome(later), HasSubstr("timeout: the store of torchrun at localhost:"));
  EXPECT_THAT(outcome([](int) {}), HasSubstr("io: the store of torchrun at localhost:"));
  EXPECT_THAT(outcome([](int file) { reply(file, std::uint8_t(1)); }),
              HasSubstr("io: the store of torchrun"));
  EXPECT_THAT(outcome([&](int file) {
                reply(file, std::uint8_t(0));
                reply(file, std::uint64_t(1) << 40);
                later(file);
              }),
              HasSubstr("a value of 1099511627776 bytes"));
  try {
    from_first("no-such-host.invalid:1", "k", true, "v", Clock::now() + kShort);
    ADD_FAILURE() << "there is no such host";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no-such-host.invalid"));
  }
}

}  // namespace torch_store_test
}  // namespace lockstep::test
