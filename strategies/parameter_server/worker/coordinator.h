// SPDX-License-Identifier: MIT
// What the chief knows of its workers: which processes are there, what each is to do, who was lost.
// The chief's own replicas ask in place (WorkSource); the processes that follow it call its service
// (messages.proto, Chief).
//
// A process that says nothing for `patience` is lost: what its workers had is dealt anew, and it is
// told so when it speaks again. It may attach again, then or after it was started anew.
//
// Threads: any; one lock, held for look-ups. The service answers on the caller's thread or on one
// of its own. Built only where there is protobuf.
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
#include "strategies/parameter_server/worker/step_totals.h"
#include "strategies/parameter_server/worker/work_dealer.h"
#include "strategies/parameter_server/worker/work_source.h"

namespace lockstep::strategies {

struct CoordinatorOptions {
  int workers = 1;           // replicas of the whole job
  int local = 1;             // of these the chief's: 0 .. local - 1
  int aggregate = 0;         // WorkDealer's ...
  std::int64_t warm_up = 0;  // ... too
  std::chrono::milliseconds patience{5000};
  engine::Log log = engine::Log();
};

class Coordinator : public rpc::Service, public WorkSource {
 public:
  explicit Coordinator(const CoordinatorOptions& options);
  ~Coordinator() override;  // nobody calls any more

  // `job`: what the processes must have in common; from now on they may attach. Ends the segment
  // that there was.
  void open(const std::string& job, std::uint64_t generation);
  void lead();      // a call of fit begins, ...
  void released();  // ... is over: so all are told
  // The segment cannot end: `wait` and `next` throw this.
  void fail_segment(const engine::Error& why);
  // Everybody is told that the job failed. The first error counts.
  void fail(const engine::Error& why);
  // Waits, not beyond the time, until all workers are there.
  void wait_for_all(engine::Clock::time_point until);
  // Waits, not beyond the time, until those that are there have heard of the end.
  void wait_for_farewells(engine::Clock::time_point until);

  void begin(const Segment& segment);
  // Waits until the segment is finished (true), or there is work for the chief's own replicas
  // (false). Throws Error(kPeerLost), naming them, where workers without which it cannot end are
  // not there and nothing was done for so long, Error(kTimeout) where all are there and nothing was
  // done for ten times as long; and what `fail` was given.
  bool wait(std::chrono::milliseconds deadline);
  void pause();  // ends the segment after the steps that are under way
  engine::Standing standing() const { return dealer_.standing(); }
  // Synchronous: waits until as many workers as make an update have reported the step, and returns
  // the sums over all that have, since the step of the last call. Throws what `wait` throws.
  engine::Totals totals(std::int64_t step, std::chrono::milliseconds deadline);
  std::vector<int> missing() const;  // workers that are not there
  int lost() const;                  // processes, so far

  // Waits while the steps are another's (WorkDealer's warm-up).
  std::optional<engine::Work> next(int worker) override;
  void done(int worker, std::int64_t step) override;
  void report(int worker, std::int64_t step, const engine::Totals& share) override;
  void flush(int) override {}
  void stop(int worker) override;
  bool stopped() const override { return dealer_.stopped(); }

  void call(std::string_view method, rpc::Message request,
            std::shared_ptr<const rpc::Caller> caller, rpc::Done done) override;

 private:
  struct Member {  // a process
    int first = 0, count = 0;
    std::uint64_t incarnation = 0;
    engine::Clock::time_point heard = {};
    bool there = false;
    std::uint64_t over = 0;  // fits of whose end it has heard
    struct Answer {
      std::uint64_t call = 0;
      rpc::Reply reply = {};
    };
    std::map<int, Answer> last = {};  // Next's, by worker
  };
  struct Waiter {  // an Order that waits
    int first = 0;
    std::uint64_t incarnation = 0, fit = 0;
    engine::Clock::time_point since = {};
    rpc::Done done;
  };
  class Calls;
  Member& member(int worker, std::uint64_t incarnation);  // throws where it is not there
  std::optional<rpc::Reply> answer_to(const Waiter& waiter);
  void answer_waiters();  // takes the lock
  void sweep();
  // The lock is held. Returns when `over` does; throws what `wait` throws.
  void wait_until(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds deadline,
                  const std::function<bool()>& over);
  bool is_missing(int worker) const;
  std::vector<int> absent() const;  // `missing`, the lock is held

  const CoordinatorOptions options_;
  WorkDealer dealer_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string job_;
  std::uint64_t generation_ = 0, fits_ = 0, incarnations_ = 0, segments_ = 0;
  bool leading_ = false;
  int lost_ = 0;
  std::optional<engine::Error> failed_;
  Segment segment_;
  StepTotals totals_;
  std::optional<engine::Error> segment_failed_;
  engine::Clock::time_point progress_ = {};  // the last time that a step was done, or somebody came
  engine::Clock::time_point swept_ = engine::Clock::now();
  std::map<int, Member> members_;  // by first worker
  std::vector<Waiter> waiters_;
  TimedWork work_;  // the last one: its thread ends before what it uses
};

}  // namespace lockstep::strategies
