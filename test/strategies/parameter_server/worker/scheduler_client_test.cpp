// SPDX-License-Identifier: MIT
// A follower hears that the chief declared it lost, and when.
#include "strategies/parameter_server/worker/scheduler_client.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "strategies/parameter_server/rpc/messages.pb.h"
#include "test/support/events.h"

namespace lockstep::test {
namespace scheduler_client_test {

using namespace std::chrono_literals;
using namespace strategies;
using engine::Clock;
using engine::Code;

// Declares every caller lost, and reports it on a thread of its own.
class TakenForLost : public rpc::Connection {
 public:
  ~TakenForLost() override {
    for (auto& heartbeat : heartbeats_) heartbeat.join();
  }
  void start(std::string_view method, rpc::Message, Clock::time_point, rpc::Done done) override {
    if (method == "Attach") {
      AttachReply reply;
      reply.set_incarnation(++incarnation_);
      return done({.message = {reply.SerializeAsString(), {}}});
    }
    heartbeats_.emplace_back(
        [done = std::move(done)] { done(rpc::failed(Code::kPeerLost, "lost")); });
  }
  std::string address() const override { return "the chief"; }

 private:
  std::uint64_t incarnation_ = 0;
  std::vector<std::thread> heartbeats_;
};

// The handler of a loss runs before this process is attached again. A later call would report an
// outdated error and end the new attachment.
TEST(SchedulerClientTest, SaysNothingOfALossOnceItIsThereAgain) {
  SchedulerClient client(std::make_unique<TakenForLost>(), {.heartbeat_interval = 60s});
  std::promise<void> begun;
  std::atomic<int> told = 0;
  client.when_lost([&](const engine::Error& why) {
    EXPECT_EQ(why.code(), Code::kPeerLost) << why.what();
    begun.set_value();
    EXPECT_TRUE(await(others_sleep));
    ++told;
  });
  client.attach("a job");
  ASSERT_EQ(begun.get_future().wait_for(20s), std::future_status::ready);
  EXPECT_TRUE(client.lost());
  client.attach("a job");
  EXPECT_EQ(told, 1);
  EXPECT_FALSE(client.lost());
}

}  // namespace scheduler_client_test
}  // namespace lockstep::test
