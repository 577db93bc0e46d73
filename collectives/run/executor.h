// SPDX-License-Identifier: MIT
// Runs one rank's share of all plans of a step. A resumable cursor: `progress` runs a bounded
// number of blocks of whatever can run, never waits, and several plans may be in flight. Everything
// that waits moves *all* plans, since two ranks that wait for different plans would otherwise
// deadlock.
//
// On a device whose kernels are queued a plan moves as they are queued: `done` and `wait` tell that
// all is queued, events order it among ranks, and `finish` waits for the device.
//
// Threads: `start`, `done` and `progress` from any thread; of several threads in `progress` one
// works, the others return at once. Cost of an idle `progress`: a few loads a plan in flight.
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

// For traces: told of what begins and of what ended, on the thread on which it did, before anybody
// can see that it has. Must not throw or wait.
class ExecutorObserver {
 public:
  virtual ~ExecutorObserver() = default;
  virtual void starts(int plan) = 0;
  virtual void waits(int plan) = 0;  // on the thread on which it has waited, then
  // From `start` to the end of this rank's share.
  virtual void completed(int plan, engine::Clock::time_point begin,
                         engine::Clock::time_point end) = 0;
  // A call of `wait` that really waited.
  virtual void waited(int plan, engine::Clock::time_point begin, engine::Clock::time_point end) = 0;
};

struct ExecutorOptions {
  std::chrono::milliseconds deadline{60000};  // of one step of a plan without any progress
  // At the deadline: a rank that waits, too, says so in this time, and is not named (liveness.h).
  std::chrono::milliseconds answer{400};
  // Results of so many bytes and more that are stored apart from what they are made of are written
  // past the caches, where they would not stay.
  std::size_t stream_from = std::size_t(2) << 20;
  // So are new weights of other ranks, where all that the host's updates of a step touch is more
  // than so many bytes: the last cache.
  std::size_t cache = std::size_t(32) << 20;
  bool read_ahead = false;  // of sums in place (engine/ops/reduce.h)
  // That `progress`, and each look of `wait` and `sleep`, reduces before it looks at what else
  // there is; at least 1.
  int blocks_at_once = 64;
  // Queues the sum over all ranks of so many numbers of each, in place, behind this rank's
  // reductions so far (Action::kVendor); none where no plan has such a step.
  std::function<void(std::byte*, std::size_t, DType)> vendor_sum = {};
  std::function<void()> hook = {};  // tests: random delays between blocks
};

class Executor {
 public:
  // `transport` may be null where all ranks are on one host.
  Executor(int rank, Team& team, Transport* transport, const engine::Ops& ops, OwnedState owned,
           ExecutorOptions options);
  // Once, before the first start: the same step on all ranks. It outlives the executor. `staging`:
  // for messages, so many bytes as WireStaging says, shared by host and device; empty: the host's.
  void open(const StepPlan& step, engine::Buffer staging = {});

  // Begins the next execution of a plan. The last one must be done. `state` is read by updates, and
  // must stay as it is until `done`.
  void start(int plan, const engine::StepState* state);
  bool done(int plan) const;
  // True when anything moved. At most `budget` blocks are reduced.
  bool progress(int budget);
  bool progress() { return progress(options_.blocks_at_once); }
  // Moves all plans until this one is done; spins briefly, then sleeps. A plan that is through at
  // the first few looks, as small ones of ranks that come together are, costs no look at the clock,
  // and counts as no waiting. Throws what stopped the
  // team; stops the team itself (kTimeout) when the deadline passes, or up to four answers' time
  // later: the text names the plan, its bytes, who arrived and who did not. `purpose` stands in
  // front of that text where given. Where a peer was lost (kPeerLost), the same is added to what
  // the team was stopped with. `deadline`, where given, is of this call, beside the executor's own
  // of a step.
  void wait(int plan, std::string_view purpose = {},
            std::optional<std::chrono::milliseconds> deadline = {});
  // As `wait`, and until the device is through: what the plan gave is the host's to read.
  void finish(int plan, std::string_view purpose = {});
  // Sets the deadline for subsequent waits. Any thread.
  void set_deadline(std::chrono::milliseconds deadline) { deadline_ = deadline; }
  // Null: nobody. Between executions of plans; plans that are started later are told.
  void observe(ExecutorObserver* observer) { observer_.store(observer); }
  // For a communication thread: moves what can move, else sleeps until there may be something.
  void sleep(std::chrono::microseconds most);
  // Hears of what stopped ranks of other hosts, also where nothing is under way. Any thread.
  void listen();
  // Ends a sleep that is under way. Any thread.
  void wake() noexcept;
  // Where the team has stopped: tells the ranks of other hosts why. When nothing else will be
  // called.
  void tell_peers() noexcept;
  // Whether the results of a reducing step, of elements of `width` bytes, are stored past the
  // caches. Since `open`.
  bool streams(const Step& step, std::size_t width) const;
  bool reads_ahead() const { return options_.read_ahead; }
  // Seconds that threads have spent in `wait` so far.
  double waited_seconds() const { return threads_.waited.load(); }
  // Seconds in which messages were under way, one or many: posted, and not known to be through.
  double messages_seconds() const { return messages_.seconds(); }

 private:
  class Waiter;
  // kBusy: another thread is at work. kOversubscribed: nothing moved, and a rank that is waited for
  // was last seen on this processor, so it can only come when this thread leaves it.
  enum class ProgressState { kMoved, kStill, kBusy, kOversubscribed };
  static constexpr int kAll = -1;
  // Events of the rank's reductions (engine/ops/ops.h): at its last arrival, at the end of each
  // plan, behind each lane's copies.
  static constexpr int kArrivals = 0;
  static int event_of(int plan) { return 1 + plan; }
  void follow(const std::vector<int>& ranks) const;
  ProgressState look_round(int budget);
  bool at_once(int plan);
  // Of all plans, or of one, under the lock.
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
  bool wakes_;  // the transport, from its sleep
  bool stream_updates_ = false;
  std::mutex mutex_;              // of the work: plans, messages, updates, operands
  std::vector<PlanState> plans_;  // they hold atomics and do not move: made all at once
  std::vector<int> order_;        // first in line first
  Messages messages_;
  UpdateArguments updates_;
  StragglerReport stragglers_;
  struct {
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
  } operands_;  // of the blocks at work
  struct {
    std::uint64_t starts = 0, ends = 0;
  } vendor_;  // executions with vendors' sums
  struct Pass {
    const PlanState* at = nullptr;  // the plan at work
    bool oversubscribed = false;    // see ProgressState
    bool awaits = false;            // a lane is stuck at ranks of this host
  };
  Pass last_pass_;
  struct {
    std::atomic<bool> asleep{false};      // one sleeps on the transport, or is about to
    std::atomic<std::uint64_t> moves{0};  // passes in which something moved
    std::atomic<int> waiters{0};          // in `wait`
    std::atomic<double> waited{0};        // seconds, in `wait`
  } threads_;                             // that call this
  std::atomic<ExecutorObserver*> observer_{nullptr};
};

}  // namespace lockstep::collectives
