// SPDX-License-Identifier: MIT
// The chief's scheduler. It knows the processes of the job, assigns steps to workers, and detects
// lost processes. The chief's own replicas call it directly (WorkSource). Other processes call its
// service (messages.proto, Chief) through a SchedulerClient.
//
// A process that sends no heartbeat for `heartbeat_timeout` is lost. Its steps go to other workers.
// Its next call throws Error(kPeerLost). It may attach again, and so may a restarted process.
//
// Thread-safe; one lock, held for look-ups. The service answers on the caller's thread or on a
// thread of its own. Built only with protobuf.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/log.h"
#include "strategies/parameter_server/rpc/rpc.h"
#include "strategies/parameter_server/rpc/timed_work.h"
#include "strategies/parameter_server/worker/assignments.h"
#include "strategies/parameter_server/worker/step_totals.h"
#include "strategies/parameter_server/worker/work_source.h"

namespace lockstep::strategies {

struct SchedulerOptions {
  int workers = 1;           // replicas of the whole job
  int local = 1;             // the chief's replicas: 0 .. local - 1
  int aggregate = 0;         // see Assignments
  std::int64_t warm_up = 0;  // see Assignments
  std::chrono::milliseconds heartbeat_timeout{5000};
  engine::Log log = engine::Log();
};

class Scheduler : public rpc::Service, public WorkSource {
 public:
  explicit Scheduler(const SchedulerOptions& options);
  ~Scheduler() override;  // no call may be in progress

  // Opens a job, to which processes can attach from then on. `job`: the text that all processes
  // must have in common. Ends the current segment.
  void open(const std::string& job, std::uint64_t generation);
  void lead();      // begins a call of `fit`
  void released();  // ends it and tells the other processes
  // Ends the current segment: `wait` and `next` throw this error.
  void fail_segment(const engine::Error& why);
  // Ends the job with this error on all processes. Only the first error counts.
  void fail(const engine::Error& why);
  // Waits until all workers are present, or until `until`.
  void wait_for_all(engine::Clock::time_point until);
  // Waits until all present processes know that the job is over, or until `until`.
  void wait_for_shutdown(engine::Clock::time_point until);

  void begin(const Segment& segment);
  // Waits until the segment is finished (returns true) or there is work for the chief's replicas
  // (returns false). If no step finishes for `deadline`, throws Error(kPeerLost) with the missing
  // workers. If no worker is missing, throws Error(kTimeout) after ten times as long.
  bool wait(std::chrono::milliseconds deadline);
  void pause();  // ends the segment after the steps in progress
  engine::Standing standing() const;
  // Synchronous: waits until `aggregate` workers have reported the step. Returns the sums of all
  // reports since the last call. Throws the errors of `wait`.
  engine::Totals totals(std::int64_t step, std::chrono::milliseconds deadline);
  std::vector<int> missing() const;  // workers that are not present
  int lost() const;                  // number of lost processes

  // Blocks during the warm-up.
  std::optional<engine::Work> next(int worker) override;
  void done(int worker, std::int64_t step) override;
  void report(int worker, std::int64_t step, const engine::Totals& share) override;
  void flush(int) override {}
  void stop(int worker) override;
  bool stopped() const override;

  void call(std::string_view method, rpc::Message request,
            std::shared_ptr<const rpc::Caller> caller, rpc::Done done) override;

 private:
  struct Member {  // a process
    int first = 0, count = 0;
    std::uint64_t incarnation = 0;
    engine::Clock::time_point last_call = {};
    bool there = false;
    std::uint64_t over = 0;  // number of fits that it knows ended
    struct Answer {
      std::uint64_t call = 0;
      rpc::Reply reply = {};
    };
    std::map<int, Answer> last = {};  // replies to Next, by worker
  };
  struct Waiter {  // a pending call of NextSegment
    int first = 0;
    std::uint64_t incarnation = 0, fit = 0;
    engine::Clock::time_point since = {};
    rpc::Done done;
  };
  rpc::Reply attach(const rpc::Message& request);
  rpc::Reply next(const rpc::Message& request);
  rpc::Reply heartbeat(const rpc::Message& request);
  Member& member(int worker, std::uint64_t incarnation);
  std::optional<rpc::Reply> answer_to(const Waiter& waiter);
  void answer_waiters();
  void lose_silent_members();
  void lose(Member& member);
  void throw_if_failed() const;
  void wait_until(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds deadline,
                  const std::function<bool()>& over);
  std::vector<int> absent() const;

  const SchedulerOptions options_;
  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  Assignments assignments_;
  std::string job_;
  std::uint64_t generation_ = 0, fits_ = 0, incarnations_ = 0, segments_ = 0;
  bool leading_ = false;
  int lost_ = 0;
  std::optional<engine::Error> failed_, segment_failed_;
  Segment segment_;
  StepTotals totals_;
  engine::Clock::time_point progress_ = {};  // time of the last finished step or attach
  engine::Clock::time_point checked_ = engine::Clock::now();  // last check for silent members
  std::map<int, Member> members_;                             // by first worker
  std::vector<Waiter> waiters_;
  // Last member: its thread ends before the members that it uses.
  TimedWork work_;
};

}  // namespace lockstep::strategies
