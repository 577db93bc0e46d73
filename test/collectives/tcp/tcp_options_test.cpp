// SPDX-License-Identifier: MIT
// The addresses and ports that a job listens on and connects to.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "collectives/tcp/socket.h"
#include "engine/base/error.h"
#include "test/collectives/tcp/tcp_ranks.h"

namespace lockstep::collectives {
namespace tcp_options_test {

using namespace std::chrono_literals;
using engine::Code;
using engine::Error;
using testing::AllOf;
using testing::HasSubstr;

int port_of(const TcpFabric& fabric) {
  const std::string address = fabric.address();
  return std::stoi(address.substr(address.rfind(':') + 1));
}

Error error_of(const TcpOptions& options) {
  try {
    const TcpFabric fabric(options);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(Code::kAborted, "");
}

// Returns a range of free ports. The system picked its first port a moment ago.
TcpOptions free_range(int length) {
  for (;;) {
    const int first = port_of(TcpFabric(kLoopback));
    if (first + length > 65535) continue;
    const auto fits = [&](int port) {
      try {
        return port_of(TcpFabric({.interface = "lo", .first_port = port, .last_port = port})) ==
               port;
      } catch (const Error&) {
        return false;
      }
    };
    bool all = true;
    for (int port = first; all && port < first + length; ++port) all = fits(port);
    if (all) return {.interface = "lo", .first_port = first, .last_port = first + length - 1};
  }
}

bool connects(const tcp::Endpoint& to) {
  const tcp::Socket socket(::socket(to.address.ss_family, SOCK_STREAM, 0));
  return ::connect(socket.file(), reinterpret_cast<const sockaddr*>(&to.address), to.length) == 0;
}

bool connects(const std::string& address, int port) {
  return connects(tcp::endpoints(address + ":" + std::to_string(port))[0]);
}

bool have_six() {
  const tcp::Socket socket(::socket(AF_INET6, SOCK_STREAM, 0));
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_addr = in6addr_loopback;
  return socket && bind(socket.file(), reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0;
}

// Exchanges a number between two ranks that know each other's address.
void exchange(TcpFabric& zero, TcpFabric& one, const std::vector<std::string>& address) {
  std::unique_ptr<Transport> at_one;
  std::jthread other([&] {
    at_one = std::move(one.connect({1}, {{1, 0}}, address, kTestKey, 30s)[0]);
  });
  const auto at_zero = std::move(zero.connect({0}, {{0, 1}}, address, kTestKey, 30s)[0]);
  other.join();
  std::byte sent{42}, got{};
  const int send = at_zero->post_send(1, 3, &sent, 1);
  wait_for(*at_one, at_one->post_receive(0, 3, &got, 1));
  wait_for(*at_zero, send);
  EXPECT_EQ(got, sent);
}

TEST(TcpOptions, RanksMeetOverIPv6Too) {
  if (!have_six()) GTEST_SKIP() << "no ::1 here";
  TcpFabric zero(kLoopback), one(kLoopback);
  exchange(zero, one, {fmt::format("::1:{}", port_of(zero)), fmt::format("::1:{}", port_of(one))});
}

TEST(TcpOptions, OnlyTheAnnouncedAddressesListen) {
  const TcpFabric fabric;
  const auto announced = tcp::endpoints(fabric.address());
  ASSERT_FALSE(announced.empty());
  for (const tcp::Endpoint& endpoint : announced) EXPECT_TRUE(connects(endpoint)) << endpoint.text;
  for (const tcp::Endpoint& loopback :
       tcp::endpoints(fmt::format("127.0.0.1,127.0.0.2,::1:{}", port_of(fabric)))) {
    const bool told = std::any_of(announced.begin(), announced.end(), [&](const auto& endpoint) {
      return endpoint.text == loopback.text;
    });
    EXPECT_EQ(connects(loopback), told) << loopback.text;
  }
}

// The addresses of the interface are announced, and nothing else listens.
TEST(TcpOptions, OfOneInterfaceOnlyItsAddressesAreUsed) {
  TcpFabric zero({.interface = "lo"}), one({.interface = "lo"});
  EXPECT_THAT(zero.address(), HasSubstr("127.0.0.1"));
  EXPECT_EQ(zero.address().find("::1") != std::string::npos, have_six());
  EXPECT_TRUE(connects("127.0.0.1", port_of(zero)));
  for (const std::string& address : tcp::local_addresses()) {
    if (address != "127.0.0.1") {
      EXPECT_FALSE(connects(address, port_of(zero))) << address;
    }
  }
  exchange(zero, one, {zero.address(), one.address()});
}

TEST(TcpOptions, AnUnknownInterfaceIsRefusedWithThoseThatThereAre) {
  const Error error = error_of({.interface = "eth77"});
  EXPECT_EQ(error.code(), Code::kInvalid);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("no network interface 'eth77'"), HasSubstr("lo")));
}

TEST(TcpOptions, PortsThatAreNoneAreRefused) {
  for (const auto& [first, last] :
       {std::pair(5, 4), std::pair(0, 5), std::pair(-1, 5), std::pair(60000, 65536)}) {
    const Error error = error_of({.first_port = first, .last_port = last});
    EXPECT_EQ(error.code(), Code::kInvalid) << first << "-" << last;
  }
}

TEST(TcpOptions, AFullRangeOfPortsIsAnErrorThatNamesIt) {
  const TcpOptions range = free_range(3);
  std::vector<std::unique_ptr<TcpFabric>> fabrics;
  for (int port = range.first_port; port <= range.last_port; ++port) {
    fabrics.push_back(std::make_unique<TcpFabric>(range));
    EXPECT_EQ(port_of(*fabrics.back()), port);
  }
  const Error error = error_of(range);
  EXPECT_EQ(error.code(), Code::kIo);
  EXPECT_THAT(error.what(), HasSubstr(fmt::format("none of the ports {}-{} is free",
                                                  range.first_port, range.last_port)));
  fabrics.pop_back();
  EXPECT_EQ(port_of(TcpFabric(range)), range.last_port);
}

// A job opens several fabrics, one after the other, and its connections keep the port.
TEST(TcpOptions, ConnectionsThatLiveDoNotUseUpThePorts) {
  const TcpOptions range = free_range(2);
  std::vector<std::unique_ptr<Transport>> kept;
  for (int round = 0; round < 4; ++round) {
    TcpFabric zero(range), one(range);
    const std::vector<std::string> address = {on_loopback(zero), on_loopback(one)};
    std::jthread other([&] {
      auto transports = one.connect({1}, {{1, 0}}, address, kTestKey, 30s);
      kept.push_back(std::move(transports[0]));
    });
    auto transports = zero.connect({0}, {{0, 1}}, address, kTestKey, 30s);
    other.join();
    kept.push_back(std::move(transports[0]));
  }
  EXPECT_EQ(kept.size(), 8u);
}

}  // namespace tcp_options_test
}  // namespace lockstep::collectives
