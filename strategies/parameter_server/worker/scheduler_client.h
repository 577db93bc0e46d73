// SPDX-License-Identifier: MIT
// A process's connection to the chief's Scheduler: it gets steps, reports them, and sends
// heartbeats.
//
// Throws Error(kUnavailable) if the chief is unreachable for longer than the deadline. Throws
// Error(kPeerLost) if the chief has declared this process lost, and Error(kAborted) if the job
// failed.
//
// Threads: each worker's thread calls WorkSource; one thread calls the rest. Built only with
// protobuf.
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

struct SchedulerClientOptions {
  int first = 1, count = 1;  // workers of this process
  std::chrono::milliseconds deadline{60000};
  std::chrono::milliseconds heartbeat_interval{500};
};

class SchedulerClient : public WorkSource {
 public:
  SchedulerClient(std::unique_ptr<rpc::Connection> chief, const SchedulerClientOptions& options);
  ~SchedulerClient() override;

  // Waits until the chief opens its job (see Scheduler::open). Call it again after a loss, or for
  // another job.
  void attach(const std::string& job);
  std::uint64_t incarnation() const { return incarnation_; }
  // Waits as long as the chief lives. Returns nothing if the call of `fit` is over.
  std::optional<Segment> next_segment();
  // Returns whether the chief has opened its job again since the last segment began.
  bool superseded() const;
  // Leaves the segment. Afterwards it is not a loss if the chief opens its job again.
  void leave_segment();
  // Returns whether the chief has declared this process lost. It may attach again.
  bool lost() const { return lost_; }
  // Sets a function that is called if the process is lost, the segment is superseded, or a
  // heartbeat is refused. It runs on a thread of this object. Null removes it.
  void when_lost(std::function<void(const engine::Error&)> tell);

  std::optional<engine::Work> next(int worker) override;
  void done(int worker, std::int64_t step) override;
  void report(int worker, std::int64_t step, const engine::Totals& share) override;
  void flush(int worker) override;
  void stop(int worker) override;
  bool stopped() const override { return stopped_; }

 private:
  struct Pending {  // a worker's reports for its next call
    std::vector<std::int64_t> done = {};
    std::vector<std::pair<std::int64_t, engine::Totals>> shares = {};  // by step
    bool stop = false;
    std::uint64_t calls = 0;  // number of calls of Next
  };
  Pending& pending(int worker) { return pending_[std::size_t(worker - options_.first)]; }
  rpc::Message call(std::string_view method, rpc::Message request);
  std::optional<engine::Work> call_next(int worker, bool only_done);
  void send_heartbeat();
  void handle_heartbeat(const rpc::Reply& reply);

  const SchedulerClientOptions options_;
  std::unique_ptr<rpc::Retry> chief_;
  std::atomic<std::uint64_t> incarnation_ = 0;
  std::uint64_t fit_ = 1;
  Segment segment_;
  std::atomic<std::uint64_t> generation_ = 0;         // current segment's; 0: none
  std::atomic<std::uint64_t> newest_generation_ = 0;  // newest that a heartbeat returned
  std::atomic<bool> stopped_ = false, lost_ = false;
  // Each entry is used only by its worker's thread.
  std::vector<Pending> pending_;
  std::mutex mutex_;  // guards the members below, and heartbeat handling
  std::function<void(const engine::Error&)> tell_;
  bool closing_ = false;
  std::unique_ptr<TimedWork> work_ = std::make_unique<TimedWork>();
};

}  // namespace lockstep::strategies
