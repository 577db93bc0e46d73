// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "test/collectives/tcp/tcp_peer.h"

namespace lockstep::collectives {
namespace tcp_patience_test {

using namespace std::chrono_literals;
using engine::Clock;

// A rank that computes for long does not read, but its host answers for it.
TEST(TcpLoss, APeerThatIsStoppedForSevenSecondsIsNotLost) {
  Peer peer([](Transport& transport) {
    std::vector<std::byte> all(kMuch);
    wait_for(transport, transport.post_receive(0, 1, all.data(), all.size()));
    std::byte thanks{1};
    wait_for(transport, transport.post_send(0, 2, &thanks, 1));
  });
  Transport& transport = peer.transport();
  peer.signal(SIGSTOP);
  const std::vector<std::byte> data(kMuch, std::byte{9});
  const int request = transport.post_send(1, 1, data.data(), data.size());
  const auto end = Clock::now() + 7s;
  while (Clock::now() < end) {
    transport.progress();
    transport.sleep(50'000);
    ASSERT_FALSE(transport.test(request));
  }
  peer.signal(SIGCONT);
  std::byte thanks{};
  wait_for(transport, request);
  wait_for(transport, transport.post_receive(1, 2, &thanks, 1));
  EXPECT_EQ(thanks, std::byte{1});
  EXPECT_EQ(peer.end(0), 0);
}

}  // namespace tcp_patience_test
}  // namespace lockstep::collectives
