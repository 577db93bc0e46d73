// SPDX-License-Identifier: MIT
// Ranks of two hosts know in which plans the other waits. The tests set the time.
#include "collectives/run/liveness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/device/buffer.h"
#include "test/collectives/memory_fabric.h"

namespace lockstep::collectives {
namespace liveness_test {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr milliseconds kAnswer{1000}, kStep{100};  // a step delivers the control messages
constexpr std::size_t kPlans = 3;

// Rank 0 is on one host, and rank 1 on another.
struct TwoHosts {
  struct Host {
    Host(int rank, MemoryFabric& fabric)
        : control(Team::control_bytes(1, kPlans)),
          team({rank}, kPlans, control.data()),
          transport(fabric.connect(rank)),
          liveness(rank, team, transport.get(), kAnswer) {}
    engine::Buffer control;
    Team team;
    std::unique_ptr<Transport> transport;
    Liveness liveness;
  };
  // Lets both ranks poll for longer than an answer takes, rank 1 in these plans. Rank 0 asks about
  // `plan`.
  void look(int plan, const std::vector<int>& there) {
    for (const auto end = now + 3 * kAnswer; now < end; now += kStep) {
      zero.liveness.wait(plan, now);
      EXPECT_THAT(zero.liveness.silent(plan, {1}, now, now), IsEmpty());
      for (const int other : there) one.liveness.wait(other, now);
    }
    zero.liveness.wait(plan, now);
  }
  MemoryFabric fabric{2};
  Host zero{0, fabric}, one{1, fabric};
  Liveness::Time now{std::chrono::hours(1)};
};

TEST(Liveness, ARankOfAnotherHostSaysInWhichPlanItWaits) {
  TwoHosts hosts;
  const Liveness& liveness = hosts.zero.liveness;
  hosts.look(0, {2});
  EXPECT_TRUE(liveness.waits(1, hosts.now));
  EXPECT_FALSE(liveness.waits_in(0, 1, hosts.now));
  EXPECT_TRUE(liveness.waits_in(2, 1, hosts.now));
  EXPECT_THAT(liveness.waiting(0, hosts.now), ElementsAre(0));
  // Rank 1 waits in several plans, and polls last in another plan than it is asked about.
  hosts.look(0, {0, 2});
  EXPECT_TRUE(liveness.waits_in(0, 1, hosts.now));
  EXPECT_THAT(liveness.waiting(0, hosts.now), ElementsAre(0, 1));
  // The answer grows old.
  hosts.look(1, {2});
  EXPECT_TRUE(liveness.waits(1, hosts.now));
  EXPECT_FALSE(liveness.waits_in(0, 1, hosts.now));
}

// Plan numbers from the wire are not trusted: no rank waits in a plan that does not exist.
TEST(Liveness, AQuestionAboutNoPlanIsAnsweredWithTheOneThatIsWaitedIn) {
  TwoHosts hosts;
  for (const int plan : {-1, int(kPlans), 1 << 30}) {
    hosts.zero.transport->send_control(1, Transport::ControlKind::kQuestion, plan);
    hosts.now += kStep;
    hosts.one.liveness.wait(1, hosts.now);
    hosts.zero.transport->progress();
    const auto said = hosts.zero.transport->receive_control();
    ASSERT_TRUE(said);
    EXPECT_EQ(said->kind, Transport::ControlKind::kAnswer);
    EXPECT_EQ(said->plan, 1);
  }
}

}  // namespace liveness_test
}  // namespace lockstep::collectives
