// SPDX-License-Identifier: MIT
// A chief and processes that follow it, which are threads here: what they make together, and what
// happens when one of them, or a server, dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <future>
#include <shared_mutex>
#include <thread>

#include "engine/reference/reference_device.h"
#include "strategies/parameter_server/rpc/in_process.h"
#include "strategies/parameter_server/worker/parameter_server.h"
#include "test/strategies/parameter_server/rpc/faulty_connection.h"
#include "test/strategies/parameter_server/worker/mortal_servers.h"
#include "test/strategies/small_job.h"
#include "test/support/events.h"

namespace lockstep::test {
namespace followers_test {

using namespace std::chrono_literals;
using namespace strategies;
using engine::Clock;
using engine::Code;
using engine::Error;
using testing::HasSubstr;

namespace fs = std::filesystem;

// The way to a chief that may be gone.
class Door : public rpc::Service {
 public:
  void open(rpc::Service* chief) {
    const std::unique_lock lock(mutex_);
    chief_ = chief;
  }
  void call(std::string_view method, rpc::Message request,
            std::shared_ptr<const rpc::Caller> caller, rpc::Done done) override {
    const std::shared_lock lock(mutex_);
    if (chief_ == nullptr) return done(rpc::failed(Code::kUnavailable, "no chief is there"));
    chief_->call(method, std::move(request), std::move(caller), std::move(done));
  }

 private:
  std::shared_mutex mutex_;
  rpc::Service* chief_ = nullptr;
};

// Ends within a step, as if killed, after so many of its own: with gradients under way, or before.
enum class Dies : std::uint8_t { kInForward, kPushing };
class Mortal : public ParameterServer {
 public:
  Mortal(ParameterServerOptions options, int steps, Dies where, std::chrono::seconds pause = {})
      : ParameterServer(std::move(options)), left_(steps), where_(where), pause_(pause) {}
  void before_forward(engine::Replica& replica, engine::Range range) override {
    ParameterServer::before_forward(replica, range);
    if (where_ == Dies::kInForward && left_ == 0) engine::fail(Code::kAborted, "killed");
  }
  void finish(engine::Replica& replica) override {
    if (where_ == Dies::kPushing && left_ == 0) engine::fail(Code::kAborted, "killed");
    if (--left_ == -3)
      std::this_thread::sleep_for(pause_);  // in the second step of an immortal one
    ParameterServer::finish(replica);
  }

 private:
  std::atomic<int> left_;
  const Dies where_;
  const std::chrono::seconds pause_;
};

struct End {
  engine::History history = {};
  std::optional<Error> error = {};
  std::vector<double> weights = {};  // the chief's
  std::string said = {};
  int lost = 0;
};

class FollowersTest : public testing::Test {
 protected:
  FollowersTest() {
    std::string name = (fs::temp_directory_path() / "lockstep-followers-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~FollowersTest() override { fs::remove_all(folder_); }

  ParameterServerOptions options(int first) {
    ParameterServerOptions options;
    options.updates.warm_up = 0;
    options.devices.assign(1, device_.get());
    options.servers = 2;
    options.connect = [this](std::size_t server) { return servers_.connect(server); };
    options.placement.partitioner = partitioner_[std::min(first, 1)];
    options.cluster = cluster_[std::min(first, 1)];
    options.workers = workers_;
    options.first_worker = first;
    if (first > 0)
      options.chief = [this] {
        return std::make_unique<FaultyConnection>(
            std::make_unique<rpc::InProcess>(door_, "the chief"), [this](std::size_t) {
              return Fault{cut_ ? Fault::What::kNotSent : Fault::What::kNone};
            });
      };
    options.updates.synchronous = synchronous_;
    options.updates.aggregate = aggregate_;
    options.deadline = deadline_;
    options.patience = patience_;
    options.look = 20ms;
    return options;
  }
  End process(int first, const Job& job, int dies_after = -1) {
    End end;
    std::mutex mutex;
    ParameterServerOptions mine = options(first);
    mine.log = engine::Log("", engine::Log::Level::kWarning, [&](auto, std::string_view line) {
      std::scoped_lock lock(mutex);
      end.said += line;
      if (line.find("its steps go to others") != line.npos) others_go_on_ = true;
    });
    try {
      Mortal strategy(mine, dies_after, where_, first == 2 ? pause_of_two_ : 0s);
      if (first == 0) door_.open(&strategy.coordinator());
      const auto shut = [&] {
        if (first == 0 && slam_) door_.open(nullptr);
      };
      try {
        end.history = train(strategy, job, nullptr);
        if (first == 0) end.weights = strategy.weights();
      } catch (...) {
        end.lost = strategy.lost();
        shut();
        strategy.close();
        if (first == 0) door_.open(nullptr);
        throw;
      }
      end.lost = strategy.lost();
      shut();
      strategy.close();
      if (first == 0) door_.open(nullptr);
    } catch (const Error& error) {
      end.error = error;
    }
    return end;
  }
  std::future<End> start(int first, const Job& job, int dies_after = -1) {
    return std::async(std::launch::async, [=, this] { return process(first, job, dies_after); });
  }
  static Job job(std::int64_t steps) {
    Job job;
    job.steps = steps;
    job.optimizer.schedule = engine::optim::schedule("constant");
    return job;
  }
  // A chief that takes a moment for a step, so that others have their part.
  static Job slow(Job job, std::chrono::milliseconds pause = 2ms) {
    job.on_step = [pause](const auto&) { std::this_thread::sleep_for(pause); };
    return job;
  }

  const std::unique_ptr<engine::Device> device_ = engine::reference_device();
  MortalServers servers_{2, *device_, engine::DType::kFloat64};
  Door door_;
  std::string folder_;
  int workers_ = 3, aggregate_ = 0;
  // As the chief and as the others have it.
  std::array<Partitioner, 2> partitioner_ = {FixedShards{2}, FixedShards{2}};
  std::array<std::string, 2> cluster_ = {};
  bool synchronous_ = false;
  Dies where_ = Dies::kPushing;
  bool slam_ = false;  // the chief says nothing at its end
  std::chrono::seconds pause_of_two_ = 0s;
  std::atomic<bool> cut_ = false, others_go_on_ = false;  // from the chief; without the one
  std::chrono::milliseconds deadline_ = 20s, patience_ = 5s;
};

TEST_F(FollowersTest, MakeTheStepsThatTheyAreGiven) {
  auto one = start(1, job(300)), two = start(2, job(300));
  const End chief = process(0, slow(job(300)));
  EXPECT_FALSE(chief.error) << chief.error->what();
  EXPECT_EQ(chief.history.steps, 300);
  for (auto* follower : {&one, &two}) {
    const End end = follower->get();
    EXPECT_FALSE(end.error) << end.error->what();
    EXPECT_GT(end.history.steps, 0);
  }
  EXPECT_EQ(chief.lost, 0);
}

// The chief waits for it, also where it could make all steps in the meantime.
TEST_F(FollowersTest, OneThatComesAMomentLaterHasItsPart) {
  workers_ = 2;
  auto chief = start(0, job(20));
  std::this_thread::sleep_for(100ms);  // many steps would be made by then
  const End one = process(1, job(20));
  EXPECT_FALSE(one.error) << one.error->what();
  EXPECT_GT(one.history.steps, 0);
  const End end = chief.get();
  EXPECT_EQ(end.history.steps, 20);
  EXPECT_THAT(end.said, testing::Not(HasSubstr("are not there")));
}

TEST_F(FollowersTest, WhoNeverComesIsNamed) {
  patience_ = 100ms;
  const End chief = process(0, job(20));
  EXPECT_FALSE(chief.error) << chief.error->what();
  EXPECT_THAT(chief.said, HasSubstr("workers [1, 2] are not there after 0.1 s"));
}

// Cut off, or stopped, for longer than the chief has patience; then it is there again.
TEST_F(FollowersTest, OneThatWasSilentForAWhileGoesOn) {
  for (const bool synchronous : {false, true}) {
    patience_ = 300ms;
    workers_ = 2;
    synchronous_ = synchronous;
    std::promise<void> trains;
    const std::int64_t steps = synchronous ? 300 : 2000;
    auto one = start(1, job(steps));
    Job leads = job(steps);
    leads.on_step = [&, reports = 0](const auto&) mutable {
      std::this_thread::sleep_for(2ms);
      if (++reports == 10) trains.set_value();
    };
    auto chief = start(0, leads);
    trains.get_future().wait();
    others_go_on_ = false, cut_ = true;
    EXPECT_TRUE(await([this] { return others_go_on_.load(); }));
    cut_ = false;
    const End follower = one.get(), end = chief.get();
    EXPECT_FALSE(follower.error) << follower.error->what();
    EXPECT_THAT(follower.said, HasSubstr("it is there again"));
    EXPECT_FALSE(end.error) << end.error->what();
    EXPECT_EQ(end.history.steps, steps);
    EXPECT_GE(end.lost, 1);
  }
}

// With backup workers the run may be over while one makes a step that nobody needs.
TEST_F(FollowersTest, ASlowOneAtTheEndIsNoError) {
  synchronous_ = true;
  aggregate_ = 2;
  auto one = start(1, job(40));
  pause_of_two_ = 6s;
  auto two = start(2, job(40));
  const End chief = process(0, job(40));
  EXPECT_FALSE(chief.error) << chief.error->what();
  EXPECT_EQ(chief.history.steps, 40);
  EXPECT_FALSE(one.get().error);
  const End last = two.get();
  EXPECT_FALSE(last.error) << last.error->what();
}

// The servers are another job's from then on, and do not hear that this one failed.
TEST_F(FollowersTest, AChiefWhoseServersAnotherOpenedEndsAndSaysSo) {
  workers_ = 1;
  std::promise<void> trains;
  Job first = slow(job(100'000));
  first.on_step = [&, pause = first.on_step](const auto& report) {
    pause(report);
    if (report.step == 10) trains.set_value();
  };
  auto one = start(0, first);
  trains.get_future().wait();
  const End two = process(0, slow(job(200)));
  EXPECT_FALSE(two.error) << two.error->what();
  const End end = one.get();
  ASSERT_TRUE(end.error);
  EXPECT_EQ(end.error->code(), Code::kPeerLost);
  EXPECT_THAT(end.error->what(), HasSubstr("another chief has opened container \"train\""));
}

TEST_F(FollowersTest, TogetherAreReplicasWhereTheyAreSynchronous) {
  synchronous_ = true;
  auto one = start(1, job(30)), two = start(2, job(30));
  const End chief = process(0, job(30));
  EXPECT_FALSE(chief.error) << chief.error->what();
  EXPECT_FALSE(one.get().error);
  EXPECT_FALSE(two.get().error);
  const Outcome mirrored = train_mirrored(job(30), replicas(3));
  EXPECT_LT(difference(chief.weights, mirrored.weights[0]), 1e-12);
}

TEST_F(FollowersTest, StepsOfALostOneAreMadeByOthers) {
  patience_ = 300ms;
  workers_ = 2;
  auto one = start(1, job(300), 5);
  const End chief = process(0, slow(job(300)));
  EXPECT_FALSE(chief.error) << chief.error->what();
  EXPECT_EQ(chief.history.steps, 300);
  EXPECT_TRUE(one.get().error);
  EXPECT_EQ(chief.lost, 1);
  EXPECT_THAT(chief.said, HasSubstr("its steps go to others"));
}

// Gradients of which a part was pushed before the death are made again from newer weights.
TEST_F(FollowersTest, OneThatDiesPushingComesBackAndAllStepsAreMade) {
  synchronous_ = true;
  workers_ = 2;
  auto chief = start(0, job(40));
  EXPECT_TRUE(process(1, job(40), 7).error);
  EXPECT_TRUE(process(1, job(40), 9).error);
  EXPECT_FALSE(process(1, job(40)).error);
  const End end = chief.get();
  EXPECT_FALSE(end.error) << end.error->what();
  EXPECT_EQ(end.history.steps, 40);
  const Outcome mirrored = train_mirrored(job(40), replicas(2));
  EXPECT_LT(relative(end.weights, mirrored.weights[0]), 0.05);
}

TEST_F(FollowersTest, OneThatComesBackMakesTheSameSteps) {
  where_ = Dies::kInForward;
  synchronous_ = true;
  workers_ = 2;
  auto chief = start(0, job(40));
  EXPECT_TRUE(process(1, job(40), 7).error);
  EXPECT_TRUE(process(1, job(40), 9).error);
  const End third = process(1, job(40));
  EXPECT_FALSE(third.error) << third.error->what();
  const End end = chief.get();
  EXPECT_FALSE(end.error) << end.error->what();
  const Outcome mirrored = train_mirrored(job(40), replicas(2));
  EXPECT_LT(difference(end.weights, mirrored.weights[0]), 1e-12);
  EXPECT_EQ(end.lost, 2);
}

TEST_F(FollowersTest, WithoutOneThatIsNeededTheRunEndsWithItsNumber) {
  synchronous_ = true;
  deadline_ = 3s;  // in which the other one attaches, however busy the machine
  auto one = start(1, job(30));
  const auto begin = Clock::now();
  const End chief = process(0, job(30));
  EXPECT_LT(Clock::now() - begin, 20s);
  ASSERT_TRUE(chief.error);
  EXPECT_EQ(chief.error->code(), Code::kPeerLost);
  EXPECT_THAT(chief.error->what(), HasSubstr("workers [2] are not there"));
  EXPECT_TRUE(one.get().error);
}

TEST_F(FollowersTest, WithoutTheChiefAllEndWithinTheDeadline) {
  deadline_ = 1s;
  slam_ = true;
  auto one = start(1, job(100'000)), two = start(2, job(100'000));
  const End chief = process(0, slow(job(100'000)), 20);
  EXPECT_TRUE(chief.error);
  const auto begin = Clock::now();
  EXPECT_TRUE(one.get().error);
  EXPECT_TRUE(two.get().error);
  EXPECT_LT(Clock::now() - begin, 10s);
}

TEST_F(FollowersTest, OneMayDieWhereTheFirstOfTheGradientsMakeAnUpdate) {
  synchronous_ = true;
  aggregate_ = 2;
  patience_ = 300ms;
  deadline_ = 60s;
  auto one = start(1, job(400)), two = start(2, job(400), 5);
  const auto begin = Clock::now();
  const End chief = process(0, slow(job(400)));
  EXPECT_LT(Clock::now() - begin, deadline_ / 2) << "not by a deadline";
  EXPECT_FALSE(chief.error) << chief.error->what();
  EXPECT_EQ(chief.history.steps, 400);
  EXPECT_EQ(chief.lost, 1);
  EXPECT_FALSE(one.get().error);
  EXPECT_TRUE(two.get().error);
}

TEST_F(FollowersTest, HearWhenTheChiefFails) {
  auto one = start(1, job(100'000)), two = start(2, job(100'000));
  const auto begin = Clock::now();
  const End chief = process(0, slow(job(100'000)), 20);
  EXPECT_TRUE(chief.error);
  for (auto* follower : {&one, &two}) {
    const End end = follower->get();
    ASSERT_TRUE(end.error);
    EXPECT_EQ(end.error->code(), Code::kPeerLost) << end.error->what();
    EXPECT_THAT(end.error->what(), HasSubstr("the chief ended the job: killed"));
  }
  EXPECT_LT(Clock::now() - begin, 10s) << "not by a deadline";
}

TEST_F(FollowersTest, WithAnotherJobAreRefused) {
  workers_ = 2;
  patience_ = 300ms;
  auto chief = start(0, slow(job(50)));
  Job other = job(50);
  other.every = 7;
  const End one = process(1, other);
  ASSERT_TRUE(one.error);
  EXPECT_EQ(one.error->code(), Code::kInvalid);
  EXPECT_THAT(one.error->what(), HasSubstr("every: 7"));
  EXPECT_THAT(one.error->what(), testing::Not(HasSubstr("\n"))) << "settings are a line";
  EXPECT_FALSE(chief.get().error);
}

// Servers in another order would be given others' gradients.
TEST_F(FollowersTest, WithAnotherClusterAreRefusedAndBothAreShown) {
  workers_ = 2;
  patience_ = 300ms;
  cluster_ = {"/job:worker/task:0 a:1\n/job:ps/task:0 s:1\n/job:ps/task:1 s:2\n",
              "/job:worker/task:0 a:1\n/job:ps/task:0 s:2\n/job:ps/task:1 s:1\n"};
  auto chief = start(0, slow(job(50)));
  const End one = process(1, job(50));
  ASSERT_TRUE(one.error);
  EXPECT_EQ(one.error->code(), Code::kInvalid);
  for (const char* said : {"clusters differ", "'/job:ps/task:0 s:1'", "'/job:ps/task:0 s:2'",
                           "the chief:\n/job:worker", "worker 1:\n/job:worker"})
    EXPECT_THAT(one.error->what(), HasSubstr(said));
  EXPECT_FALSE(chief.get().error);
}

// Variables in another order would lie on other servers: both orders are shown.
TEST_F(FollowersTest, WithAnotherPlacementAreRefusedAndBothAreShown) {
  workers_ = 2;
  patience_ = 300ms;
  partitioner_[1] = FixedShards{1};
  auto chief = start(0, slow(job(50)));
  const End one = process(1, job(50));
  ASSERT_TRUE(one.error);
  EXPECT_EQ(one.error->code(), Code::kInvalid);
  EXPECT_THAT(one.error->what(), HasSubstr("the processes' jobs differ: in line "));
  EXPECT_THAT(one.error->what(), HasSubstr("the chief:\n"));
  EXPECT_THAT(one.error->what(), HasSubstr("worker 1:\n"));
  EXPECT_FALSE(chief.get().error);
}

// A server dies when `step` is reported, and is there again, empty, a moment later.
class ServerDies : public FollowersTest {
 protected:
  Job with_death(Job job, std::int64_t step, bool comes_back = true) {
    job.on_step = [=, this](const engine::StepReport& report) {
      if (report.step < step || died_.exchange(true)) return;
      servers_.kill(1);
      if (!comes_back) return;
      back_ = std::async(std::launch::async, [this] {
        std::this_thread::sleep_for(50ms);
        servers_.start(1);
      });
    };
    return job;
  }
  Job saving(Job job) {
    job.checkpoints = folder_;
    job.every = 10;
    return job;
  }
  std::atomic<bool> died_ = false;
  std::future<void> back_;
};

TEST_F(ServerDies, AndIsGivenTheLastCheckpoint) {
  workers_ = 2;
  auto one = start(1, saving(job(200)));
  const End chief = process(0, saving(with_death(job(200), 25)));
  EXPECT_FALSE(chief.error) << chief.error->what();
  EXPECT_FALSE(one.get().error);
  EXPECT_EQ(chief.history.steps, 200);
  EXPECT_THAT(chief.said, HasSubstr("was given the checkpoint of step"));
  EXPECT_TRUE(died_);
  for (const double weight : chief.weights) ASSERT_TRUE(std::isfinite(weight));
}

TEST_F(ServerDies, WithoutACheckpointTheRunEnds) {
  workers_ = 1;
  const End chief = process(0, with_death(job(100'000), 5));
  ASSERT_TRUE(chief.error);
  EXPECT_EQ(chief.error->code(), Code::kPeerLost);
  EXPECT_THAT(chief.error->what(), HasSubstr("came back without its variables"));
}

TEST_F(ServerDies, AndDoesNotComeBackWithinTheDeadline) {
  workers_ = 1;
  deadline_ = 500ms;
  const auto begin = Clock::now();
  const End chief = process(0, saving(with_death(job(100'000), 25, false)));
  ASSERT_TRUE(chief.error);
  EXPECT_EQ(chief.error->code(), Code::kUnavailable);
  EXPECT_THAT(chief.error->what(), HasSubstr("server 1"));
  EXPECT_LT(Clock::now() - begin, 20s);
}

TEST_F(ServerDies, AndSynchronousTrainingGoesOnAsAWhole) {
  synchronous_ = true;
  workers_ = 2;
  Job whole = saving(job(60));
  whole.retries = 1;
  auto one = start(1, saving(job(60)));
  const End chief = process(0, with_death(whole, 25));
  EXPECT_FALSE(chief.error) << chief.error->what();
  const End follower = one.get();
  EXPECT_FALSE(follower.error) << follower.error->what();
  EXPECT_EQ(chief.history.restores, 1);
  const Outcome mirrored = train_mirrored(job(60), replicas(2));
  EXPECT_LT(difference(chief.weights, mirrored.weights[0]), 1e-12);
}

}  // namespace followers_test
}  // namespace lockstep::test
