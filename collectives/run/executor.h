// SPDX-License-Identifier: MIT
// Runs one rank's share of all plans of a step, as a resumable cursor. `progress` runs a bounded
// number of blocks of whatever can run and never blocks. Several plans may be in flight. Every wait
// advances *all* plans, since two ranks that wait for different plans would otherwise deadlock.
//
// On a device whose kernels are queued, a plan advances as they are queued. `done` and `wait`
// report that all is queued, events order it among ranks, and `finish` waits for the device.
//
// Threads: any thread may call `start`, `done` and `progress`. Of several threads in `progress` one
// works, and the others return at once. An idle `progress` costs a few loads per plan in flight.
// The team, the transport and the ops outlive the executor.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/plan/plan.h"
#include "collectives/run/messages.h"
#include "collectives/run/operand_address.h"
#include "collectives/run/owned_state.h"
#include "collectives/run/plan_state.h"
#include "collectives/run/straggler_report.h"
#include "collectives/run/team.h"
#include "collectives/run/transport.h"
#include "collectives/run/update_arguments.h"
#include "engine/ops/ops.h"

namespace lockstep::collectives {

// Receives the begin and the end of executions and waits, for traces. It is called on the thread on
// which they happen, before others can see them. It must not throw or wait.
class ExecutorObserver {
 public:
  virtual ~ExecutorObserver() = default;
  virtual void starts(int plan) = 0;
  virtual void waits(int plan) = 0;  // begins; `waited` follows on the same thread
  // Reports a plan, from `start` to the end of this rank's share.
  virtual void completed(int plan, engine::Clock::time_point begin,
                         engine::Clock::time_point end) = 0;
  // Reports a call of `wait` that really waited.
  virtual void waited(int plan, engine::Clock::time_point begin, engine::Clock::time_point end) = 0;
};

struct ExecutorOptions {
  std::chrono::milliseconds deadline{60000};  // limit of a step without progress
  // Time after the deadline in which a rank that waits too can say so. Then it is not named
  // (liveness.h).
  std::chrono::milliseconds answer{400};
  // Bytes from which results that are not stored over their operands are written with non-temporal
  // stores, since they would not stay in the caches.
  std::size_t stream_from = std::size_t(2) << 20;
  // Bytes of the last cache. New weights of other ranks are also written with non-temporal stores
  // if the host's updates of a step touch more than that.
  std::size_t cache = std::size_t(32) << 20;
  bool read_ahead = false;  // prefetches in sums in place (engine/ops/reduce.h)
  // Blocks that `progress`, and each poll of `wait` and `sleep`, reduces before it polls for other
  // work; at least 1.
  int blocks_at_once = 64;
  // Queues the sum over all ranks of so many numbers per rank, in place, behind this rank's
  // reductions so far (Action::kVendor). It is empty if no plan has such a step.
  std::function<void(std::byte*, std::size_t, DType)> vendor_sum = {};
  std::function<void()> hook = {};  // tests: random delays between blocks
};

class Executor {
 public:
  // `transport` may be null if all ranks are on one host.
  Executor(int rank, Team& team, Transport* transport, const engine::Ops& ops, OwnedState owned,
           ExecutorOptions options);
  // Sets the step, which is the same on all ranks and outlives the executor. Call it once, before
  // the first start. `staging`: memory for messages, of WireStaging::bytes, that host and device
  // share. If it is empty, messages use host memory.
  void open(const StepPlan& step, engine::Buffer staging = {});

  // Begins the next execution of a plan. The last one must be done. Updates read `state`, which
  // must not change until `done`.
  void start(int plan, const engine::StepState* state);
  bool done(int plan) const;
  // Moves what can move and reduces at most `budget` blocks. Returns whether anything moved.
  bool progress(int budget);
  bool progress() { return progress(options_.blocks_at_once); }
  // Moves all plans until this one is done; spins briefly, then sleeps. A plan that completes
  // within the first few polls reads no clock and counts as no waiting. Small plans of simultaneous
  // ranks do that.
  //
  // Throws what stopped the team. Stops the team itself (kTimeout) when the deadline passes, or up
  // to four answers' time later. The error names the plan, its bytes, and the ranks that arrived
  // and that did not. `purpose`, if given, precedes its text. If a peer was lost (kPeerLost), the
  // same is added to what the team was stopped with. `deadline`, if given, limits this call, beside
  // the executor's own deadline of a step.
  void wait(int plan, std::string_view purpose = {},
            std::optional<std::chrono::milliseconds> deadline = {});
  // Waits like `wait`, and until the device has completed the plan, so that the host can read its
  // results.
  void finish(int plan, std::string_view purpose = {});
  // Sets the deadline for subsequent waits. Thread-safe.
  void set_deadline(std::chrono::milliseconds deadline) { deadline_ = deadline; }
  // Sets the observer; null removes it. Call it between executions: plans that start later report
  // to it.
  void observe(ExecutorObserver* observer) { observer_.store(observer); }
  // Moves what can move, else sleeps until there may be work. For a communication thread.
  void sleep(std::chrono::microseconds most);
  // Receives what stopped ranks of other hosts, even if no message is in flight. Thread-safe.
  void listen();
  // Ends a sleep that is in progress. Thread-safe.
  void wake() noexcept;
  // Tells the ranks of other hosts why the team has stopped, if it has. No other call may follow.
  void tell_peers() noexcept;
  // Returns whether the results of a reducing step are written with non-temporal stores. `width`:
  // bytes of an element. Valid after `open`.
  bool streams(const Step& step, std::size_t width) const;
  bool reads_ahead() const { return options_.read_ahead; }
  // Returns the seconds that threads have spent in `wait` so far.
  double waited_seconds() const { return threads_.waited.load(); }
  // Returns the seconds in which one or more messages were in flight: posted and not known to be
  // complete.
  double messages_seconds() const { return messages_.seconds(); }

 private:
  class Waiter;
  // Tells how a round ended. kBusy: another thread is at work. kOversubscribed: nothing moved, and
  // a missing rank was last seen on this processor, so it can come only when this thread leaves it.
  enum class ProgressState { kMoved, kStill, kBusy, kOversubscribed };
  static constexpr int kAll = -1;
  // Events of the rank's reductions (engine/ops/ops.h): at its last arrival, at the end of each
  // plan, and behind each lane's copies.
  static constexpr int kArrivals = 0;
  static int event_of(int plan) { return 1 + plan; }
  void follow(const std::vector<int>& ranks) const;
  ProgressState look_round(int budget);
  bool at_once(int plan);
  // Moves all plans, or one, under the lock.
  bool pass(int& budget, bool& ended, int plan = kAll);
  bool move(int plan, int& budget, bool& ended);
  bool advance(PlanState& state, int plan, int lane, int& budget);
  bool reduce(PlanState& state, Cursor& cursor, const Step& step, int& budget);
  bool all_arrived(const PlanState& state, int plan, const Step& await);
  void stop_late(int plan, std::chrono::milliseconds waited, engine::Clock::time_point since);
  [[noreturn]] void rethrow_waiting(int plan);
  void idle(std::chrono::microseconds most, std::optional<int> plan);

  int rank_;
  Team& team_;
  Transport* transport_;
  const engine::Ops& ops_;
  ExecutorOptions options_;
  OperandAddress address_;
  std::atomic<std::chrono::milliseconds> deadline_;
  bool wakes_;  // the transport can be woken
  bool stream_updates_ = false;
  std::mutex mutex_;              // of plans, messages, updates and operands
  std::vector<PlanState> plans_;  // immovable (atomics): created all at once
  std::vector<int> order_;        // first in line first
  Messages messages_;
  UpdateArguments updates_;
  StragglerReport stragglers_;
  struct {
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
  } operands_;  // operands of the blocks at work
  struct {
    std::uint64_t starts = 0, ends = 0;
  } vendor_;  // executions with vendors' sums
  struct Pass {
    const PlanState* at = nullptr;  // the plan at work
    bool oversubscribed = false;    // see ProgressState
    bool awaits = false;            // a lane waits for this host's ranks
  };
  Pass last_pass_;
  struct {
    std::atomic<bool> asleep{false};      // a thread sleeps, or will, on the transport
    std::atomic<std::uint64_t> moves{0};  // passes in which something moved
    std::atomic<int> waiters{0};          // in `wait`
    std::atomic<double> waited{0};        // seconds, in `wait`
  } threads_;                             // threads that call this
  std::atomic<ExecutorObserver*> observer_{nullptr};
};

}  // namespace lockstep::collectives
