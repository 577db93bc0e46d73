// SPDX-License-Identifier: MIT
// A chief and its followers, which are threads here, with servers that may die.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/reference/reference_device.h"
#include "strategies/parameter_server/rpc/in_process.h"
#include "strategies/parameter_server/worker/parameter_server.h"
#include "test/strategies/parameter_server/rpc/faulty_connection.h"
#include "test/strategies/parameter_server/worker/mortal_servers.h"
#include "test/strategies/small_job.h"
#include "test/support/events.h"

namespace lockstep::test {

// Forwards calls to a chief, and fails them while there is none.
class Door : public strategies::rpc::Service {
 public:
  void open(strategies::rpc::Service* chief) {
    const std::unique_lock lock(mutex_);
    chief_ = chief;
  }
  void call(std::string_view method, strategies::rpc::Message request,
            std::shared_ptr<const strategies::rpc::Caller> caller,
            strategies::rpc::Done done) override {
    const std::shared_lock lock(mutex_);
    if (chief_ == nullptr)
      return done(strategies::rpc::failed(engine::Code::kUnavailable, "no chief is there"));
    chief_->call(method, std::move(request), std::move(caller), std::move(done));
  }

 private:
  std::shared_mutex mutex_;
  strategies::rpc::Service* chief_ = nullptr;
};

// Ends within a step, as if killed, after `steps` of its own steps. Its gradients are in flight
// (kPushing) or not yet pushed (kInForward).
enum class Dies : std::uint8_t { kInForward, kPushing };
class Mortal : public strategies::ParameterServer {
 public:
  Mortal(strategies::ParameterServerOptions options, int steps, Dies where,
         std::atomic<int>& finished, std::chrono::seconds pause = {})
      : strategies::ParameterServer(std::move(options)),
        left_(steps),
        where_(where),
        finished_(finished),
        pause_(pause) {}
  void before_forward(engine::Replica& replica, engine::Range range) override {
    strategies::ParameterServer::before_forward(replica, range);
    if (where_ == Dies::kInForward && left_ == 0) engine::fail(engine::Code::kAborted, "killed");
  }
  void finish(engine::Replica& replica) override {
    if (where_ == Dies::kPushing && left_ == 0) engine::fail(engine::Code::kAborted, "killed");
    if (--left_ == -3)
      std::this_thread::sleep_for(pause_);  // in the second step of an immortal one
    strategies::ParameterServer::finish(replica);
    ++finished_;
  }

 private:
  std::atomic<int> left_;
  const Dies where_;
  std::atomic<int>& finished_;  // steps
  const std::chrono::seconds pause_;
};

struct End {
  engine::History history = {};
  std::optional<engine::Error> error = {};
  std::vector<double> weights = {};  // the chief's
  std::string said = {};
  int lost = 0;
};

class FollowersTest : public testing::Test {
 protected:
  FollowersTest() {
    std::string name =
        (std::filesystem::temp_directory_path() / "lockstep-followers-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~FollowersTest() override { std::filesystem::remove_all(folder_); }

  strategies::ParameterServerOptions options(int first) {
    strategies::ParameterServerOptions options;
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
            std::make_unique<strategies::rpc::InProcess>(door_, "the chief"), [this](std::size_t) {
              return Fault{cut_ ? Fault::What::kNotSent : Fault::What::kNone};
            });
      };
    options.updates.synchronous = synchronous_;
    options.updates.aggregate = aggregate_;
    options.deadline = deadline_;
    options.heartbeat_timeout = heartbeat_timeout_;
    options.poll_interval = std::chrono::milliseconds(20);
    return options;
  }
  End process(int first, const Job& job, int dies_after = -1) {
    End end;
    std::mutex mutex;
    strategies::ParameterServerOptions mine = options(first);
    mine.log = engine::Log("", engine::Log::Level::kWarning, [&](auto, std::string_view line) {
      std::scoped_lock lock(mutex);
      end.said += line;
      if (line.find("its steps go to others") != line.npos) others_go_on_ = true;
    });
    try {
      Mortal strategy(mine, dies_after, where_, finished_[std::size_t(first)],
                      first == 2 ? pause_of_two_ : std::chrono::seconds(0));
      if (first == 0) door_.open(&strategy.scheduler());
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
    } catch (const engine::Error& error) {
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
  // Returns a chief's job with a pause in each step, so that the others make steps, too.
  static Job slow(Job job, std::chrono::milliseconds pause = std::chrono::milliseconds(2)) {
    job.on_step = [pause](const auto&) { std::this_thread::sleep_for(pause); };
    return job;
  }
  // Returns a chief's job that waits in each step until its only follower has made one.
  Job waiting(Job job) {
    job.on_step = [this](const auto&) { EXPECT_TRUE(await([this] { return finished_[1] > 0; })); };
    return job;
  }

  const std::unique_ptr<engine::Device> device_ = engine::reference_device();
  MortalServers servers_{2, *device_, engine::DType::kFloat64};
  Door door_;
  std::string folder_;
  int workers_ = 3, aggregate_ = 0;
  // The chief's value, then the others'.
  std::array<strategies::Partitioner, 2> partitioner_ = {strategies::FixedShards{2},
                                                         strategies::FixedShards{2}};
  std::array<std::string, 2> cluster_ = {};
  bool synchronous_ = false;
  std::array<std::atomic<int>, 3> finished_ = {};  // steps of each process
  Dies where_ = Dies::kPushing;
  bool slam_ = false;  // the chief ends without a shutdown handshake
  std::chrono::seconds pause_of_two_{0};
  std::atomic<bool> cut_ = false, others_go_on_ = false;  // no chief; its steps reassigned
  std::chrono::milliseconds deadline_{20'000}, heartbeat_timeout_{5'000};
};

}  // namespace lockstep::test
