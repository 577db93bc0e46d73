// SPDX-License-Identifier: MIT
// The order in which the addresses of a peer are dialed.
#include "collectives/tcp/nearest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::collectives::tcp {
namespace nearest_test {

using testing::ElementsAre;

std::vector<std::string> order(const std::string& address, const std::vector<OwnAddress>& own) {
  std::vector<std::string> texts;
  for (const Endpoint& endpoint : nearest_first(endpoints(address), own))
    texts.push_back(endpoint.text);
  return texts;
}

// 172.17.0.1 is the bridge that every host has: dialing it leads back to this host.
TEST(Nearest, NetworksOfThisHostComeFirstAndItsOwnAddressesLast) {
  const std::vector<OwnAddress> own{
      {"127.0.0.1", 8}, {"10.0.0.1", 24}, {"172.17.0.1", 16}, {"fd00::1", 64}, {"10.8.0.1", 13}};
  EXPECT_THAT(order("172.17.0.1,192.168.9.9,10.0.0.7,fd00::5,10.16.0.1,10.9.1.1,fd01::5:80", own),
              ElementsAre("10.0.0.7:80", "[fd00::5]:80", "10.9.1.1:80", "192.168.9.9:80",
                          "10.16.0.1:80", "[fd01::5]:80", "172.17.0.1:80"));
  EXPECT_THAT(order("10.0.0.1,172.17.0.1:80", own), ElementsAre("10.0.0.1:80", "172.17.0.1:80"));
  EXPECT_THAT(order("10.0.0.2,10.0.0.1:80", {}), ElementsAre("10.0.0.2:80", "10.0.0.1:80"));
}

TEST(Nearest, LoopbackIsAnAddressOfThisHost) {
  const auto own = own_addresses();
  const auto loopback = std::find_if(own.begin(), own.end(), [](const OwnAddress& address) {
    return address.address == "127.0.0.1";
  });
  ASSERT_NE(loopback, own.end());
  EXPECT_EQ(loopback->bits, 8);
}

}  // namespace nearest_test
}  // namespace lockstep::collectives::tcp
