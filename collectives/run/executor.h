// SPDX-License-Identifier: MIT
// Runs one rank's share of all plans of a step. A resumable cursor: `progress` runs a bounded
// number of blocks of whatever can run, never waits, and several plans may be in flight. Everything
// that waits moves *all* plans, since two ranks that wait for different plans would otherwise
// deadlock.
//
// On a device whose kernels are queued a plan moves as they are queued: `done` and `wait` tell that
// all is queued, marks order it among ranks, and `finish` waits for the device.
//
// Threads: `start`, `done` and `progress` from any thread; of several threads in `progress` one
// works, the others return at once. Cost of an idle `progress`: a few loads a plan in flight.
// The team, the transport and the ops outlive the executor.
#pragma once
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/plan/plan.h"
#include "collectives/run/presence.h"
#include "collectives/run/team.h"
#include "collectives/run/transport.h"
#include "collectives/run/wire_staging.h"
#include "engine/ops/ops.h"

namespace lockstep::collectives {

// The optimizer's state of one rank: its owned ranges, packed one behind the other. Of the values
// kept (engine/ops/reduce.h) number k of owned element i lies at slots + (k * elements + i) * the
// size of the dtype that is computed in: slots, then the masters of weights of 16 bits.
struct OwnedState {
  const engine::UpdateRule* rule = nullptr;
  std::vector<Range> ranges = {};  // ascending in the packed order
  std::byte* slots = nullptr;
  std::size_t norm_blocks = 0;  // blocks of the whole arena that a global norm adds
  // Of the arena, ascending, up to its end; none: all of it is alike, and decays.
  std::vector<engine::UpdateSegment> segments = {};
  // Of a rule that needs something of all gradients: where that is found, and lies as it begins;
  // none: in memory of the executor's own, where kernels read the host's.
  engine::UpdateMemory memory = {};
  std::size_t segment(std::size_t offset) const;  // the number of that which holds the element
  // Numbers in the norms of a rank, whose arena has so many blocks and segments, where the rule
  // needs norms of layers.
  static std::size_t layer_norms(std::size_t blocks, std::size_t segments) {
    return 2 * (blocks + segments);
  }
  std::size_t elements() const;
  std::size_t local(std::size_t offset) const;  // where arena element `offset` lies, packed
};

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
  // At the deadline: a rank that waits, too, says so in this time, and is not named (presence.h).
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
  // Of every wait from now on; any thread.
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
  double waited_seconds() const;  // spent in `wait` so far, by the threads that waited
  // In which messages were under way, one or many: posted, and not known to be through.
  double messages_seconds() const;

 private:
  class Waiter;
  struct Cursor {                        // of one lane
    std::size_t step = 0, element = 0;   // of the step: so many elements are reduced or converted
    std::size_t owned = 0;               // update steps: where the step's range lies, packed
    std::vector<int> posts = {};         // the transport's request of each posting step
    int mark = 0;                        // behind its copies of messages
    bool copied = false;                 // the message that is to be sent next is
    bool taken = false;                  // one that came is, or will be when the mark has passed
    int looks = 0;                       // at this step, while it was stuck
    std::chrono::nanoseconds waited{0};  // of these, but for the first few
    engine::Clock::time_point looked{};
    engine::Clock::time_point late{};  // since when that has been too long
  };
  struct Entry {  // a plan
    const Stage* stage = nullptr;
    const std::vector<Lane>* mine = nullptr;                // its lanes of this rank
    std::vector<std::vector<std::uint64_t>> arrivals = {};  // per execution: [rank][lane]
    std::atomic<std::uint64_t> requested{0}, completed{0};
    std::atomic<const engine::StepState*> state{nullptr};
    engine::Clock::time_point began{};  // the last execution, where somebody observes
    std::vector<Cursor> cursors = {};
    bool vendor = false;       // some step of it is a vendor's sum
    std::uint64_t turn = 0;    // then: which of all such executions this is; all ranks agree
    bool updates = false;      // some step of it, of any rank, is an update
    std::string purpose = {};  // of who waits for it; purposes_ guards it
  };
  // kElsewhere: another thread is at work. kCrowded: still, and a rank that is waited for was last
  // seen on this processor, so it can only come when this thread leaves it.
  enum class Looked { kMoved, kStill, kElsewhere, kCrowded };
  static constexpr int kAll = -1;
  enum class Went { kThrough, kOn, kNowhere };  // a message: its step is over, it moved, it did not
  struct Place {                                // of a message
    int plan = 0, lane = 0;
    int tag() const { return plan * kMaxLanes + lane; }
  };
  // Marks of the rank's reductions (engine/ops/ops.h): at its last arrival, at the end of each
  // plan, behind each lane's copies.
  static constexpr int kArrivals = 0;
  static int mark_of(int plan) { return 1 + plan; }
  // Whether a plan's sums are queued on the device; else they are done when it has moved.
  bool queued(const Entry& entry) const;
  void mark_arrival() const;
  void follow(const std::vector<int>& ranks) const;
  void find_factors(const Entry& entry, std::uint64_t execution);
  Looked look_round(int budget);
  bool at_once(int plan);
  // Of all plans, or of one, under the lock.
  bool pass(int& budget, bool& ended, int plan = kAll);
  bool move(int plan, int& budget, bool& ended);
  bool advance(Entry& entry, int plan, int lane, int& budget);
  Went message(Entry& entry, Cursor& cursor, const Lane& steps, Place at, int& budget);
  Went send(Entry& entry, Cursor& cursor, const Step& step, Place at, int& budget);
  Went receive(Entry& entry, Cursor& cursor, const Step& step, Place at);
  Went wait_for(Entry& entry, Cursor& cursor, std::size_t post, const Step& message, Place at,
                int& budget);
  static std::size_t bytes(const Plan& plan, const Step& message);
  bool passed(const Cursor& cursor);
  void posted();
  void through();
  bool convert(Cursor& cursor, const std::byte* from, DType type, std::byte* to, DType target,
               std::size_t count, int& budget) const;
  bool reduce(Entry& entry, Cursor& cursor, const Step& step, int& budget);
  std::size_t updated_bytes(const StepPlan& step) const;
  void update_arguments(Entry& entry, Cursor& cursor, const Step& step,
                        engine::ReduceArguments& arguments);
  bool by_segments(const Step& step) const;
  bool joins_segments(const Step& step) const;
  std::size_t join_segments(std::size_t segment, std::size_t at, std::size_t count);
  void segment_arguments(const Entry& entry, std::size_t segment, std::size_t at,
                         engine::ReduceArguments& arguments) const;
  void take_weight_squares(const Entry& entry, std::size_t at,
                           const engine::ReduceArguments& of_gradients) const;
  bool all_arrived(const Entry& entry, int plan, const Step& await);
  bool arrived(const Entry& entry, int plan, const Step& await, int rank) const;
  void look(Entry& entry, int plan, int lane);
  bool others_ask(int plan, engine::Clock::time_point now) const;
  bool blame(Entry& entry, int lane, int plan, std::chrono::milliseconds waited,
             engine::Clock::time_point since, engine::Clock::time_point now);
  bool blame(Entry& entry, int plan, std::chrono::milliseconds waited,
             engine::Clock::time_point since);
  void stop_late(int plan, std::chrono::milliseconds waited, engine::Clock::time_point since);
  std::string purpose_of(const Entry& entry);
  std::vector<int> missing(const Entry& entry, int plan, int lane) const;
  std::string presence(const Entry& entry, int plan, int lane,
                       const std::vector<int>& missing) const;
  std::string waiting_for(int plan, const std::vector<int>& lost);
  [[noreturn]] void rethrow_waiting(int plan);
  double* norms() const;
  std::byte* address(const Entry& entry, const Operand& operand, DType dtype,
                     std::size_t element) const;
  void idle(std::chrono::microseconds most, std::optional<int> plan);

  int rank_;
  Team& team_;
  Transport* transport_;
  const engine::Ops& ops_;
  OwnedState owned_;
  ExecutorOptions options_;
  Presence presence_;
  std::atomic<std::chrono::milliseconds> deadline_;
  std::size_t owned_elements_;
  bool wakes_;  // the transport, from its sleep
  bool stream_updates_ = false;
  std::vector<std::size_t> turns_;  // of the call that is being made
  engine::Buffer own_found_;        // where OwnedState has none
  std::uint64_t found_ = 0;         // the execution, from 1, that it was found in last
  std::mutex mutex_;                // of the work: cursors, transport, operands
  std::mutex purposes_;
  std::vector<Entry> entries_;  // they hold atomics and do not move: made all at once
  std::vector<int> order_;      // first in line first
  WireStaging staging_;
  std::vector<const std::byte*> from_;  // the operands of the blocks at work
  std::vector<std::byte*> to_;
  std::uint64_t vendor_starts_ = 0, vendor_ends_ = 0;  // executions with vendors' sums
  const Entry* at_ = nullptr;                          // the plan at work
  engine::Clock::time_point sent_{};  // the first of the messages that are under way
  bool crowded_ = false;              // see Looked
  bool awaits_ = false;               // a lane is stuck at ranks of this host; of the last pass
  std::atomic<bool> behind_device_{false};  // or at what the device has not done yet
  std::atomic<int> messages_{0};            // posted and not through
  std::atomic<bool> asleep_{false};         // a thread sleeps on the transport, or is about to
  std::atomic<std::uint64_t> moves_{0};     // passes in which something moved
  std::atomic<int> waiters_{0};             // threads in `wait`
  std::atomic<double> waited_{0}, flown_{0};
  std::atomic<ExecutorObserver*> observer_{nullptr};
};

}  // namespace lockstep::collectives
