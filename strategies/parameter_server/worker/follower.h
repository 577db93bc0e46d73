// SPDX-License-Identifier: MIT
// A worker's process that follows the chief: it asks the chief what to do (coordinator.h), and
// tells it now and then that it lives. What it throws is Error(kUnavailable) where the chief cannot
// be reached for as long as the deadline, Error(kPeerLost) where the chief took this process for
// lost, Error(kAborted) where the job failed.
//
// Threads: attach, order, segment and superseded from the owner's thread; WorkSource's from each
// worker's own. Built only where there is protobuf.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "strategies/parameter_server/rpc/retry.h"
#include "strategies/parameter_server/rpc/rpc.h"
#include "strategies/parameter_server/rpc/timed_work.h"
#include "strategies/parameter_server/worker/work_source.h"

namespace lockstep::strategies {

struct FollowerOptions {
  int first = 1, count = 1;  // its workers
  std::chrono::milliseconds deadline{60000};
  std::chrono::milliseconds beat{500};
};

class Follower : public WorkSource {
 public:
  Follower(std::unique_ptr<rpc::Connection> chief, const FollowerOptions& options);
  ~Follower() override;

  // Waits for the chief to open its job, within the deadline. `job`: see Coordinator::open. Again
  // where the chief has given this process up, or for another job.
  void attach(const std::string& job);
  std::uint64_t incarnation() const { return incarnation_; }
  // Steps to make; nothing: the call of fit is over. As long as the chief lives it may wait.
  std::optional<Segment> order();
  // The chief has begun anew, in another generation than that of the last order.
  bool superseded() const;
  // The last order is none any more: nobody is told again that it was superseded.
  void leave();
  // The chief has taken this process for lost, which was silent for too long: it may attach again.
  bool given_up() const { return given_up_; }
  // Called, on a thread of this object, when that happens, and with what a beat was refused with;
  // null: nobody.
  void when_lost(std::function<void(const engine::Error&)> tell);

  std::optional<engine::Work> next(int worker) override;
  void done(int worker, std::int64_t step) override;
  void report(int worker, std::int64_t step, const engine::Totals& share) override;
  void flush(int worker) override;
  void stop(int worker) override;
  bool stopped() const override { return stopped_; }

 private:
  struct Told {  // of one worker, not said yet
    std::vector<std::int64_t> done = {};
    std::vector<std::pair<std::int64_t, engine::Totals>> shares = {};  // by step
    bool stop = false;
    std::uint64_t calls = 0;  // of Next
  };
  rpc::Message call(std::string_view method, rpc::Message request);
  std::optional<engine::Work> ask(int worker, bool only_done);
  void beat();
  void heard(const rpc::Reply& reply);

  const FollowerOptions options_;
  std::unique_ptr<rpc::Retry> chief_;
  std::atomic<std::uint64_t> incarnation_ = 0;
  std::uint64_t fit_ = 1;
  Segment segment_;
  std::atomic<std::uint64_t> expected_ = 0;  // generation of the last order; 0: none
  std::atomic<std::uint64_t> open_ = 0;      // generation that the chief spoke of last
  std::atomic<bool> stopped_ = false, given_up_ = false;
  std::vector<Told> told_;  // by worker of this process; each its thread's alone
  std::mutex mutex_;
  std::function<void(const engine::Error&)> tell_;
  bool closing_ = false;
  std::unique_ptr<TimedWork> work_ = std::make_unique<TimedWork>();
};

}  // namespace lockstep::strategies
