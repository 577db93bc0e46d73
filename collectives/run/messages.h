// SPDX-License-Identifier: MIT
// Messages of one rank's lanes. If messages do not travel from and to their operands (WireStaging),
// data is copied before it is sent and after it is received. A device queues these copies among its
// reductions. An event behind them tells when the data to send is there, and when a place is free
// for the next message. Nobody blocks on it; the lane is polled again.
//
// Each executor owns one and calls it under its lock; any thread may call the functions that only
// report. The transport (null on one host) and the ops outlive it. Throws what the transport
// throws.
#pragma once
#include <atomic>
#include <cstddef>
#include <utility>

#include "collectives/plan/plan.h"
#include "collectives/run/operand_address.h"
#include "collectives/run/plan_state.h"
#include "collectives/run/transport.h"
#include "collectives/run/wire_staging.h"
#include "engine/base/error.h"
#include "engine/ops/ops.h"

namespace lockstep::collectives {

class Messages {
 public:
  // Tells what a poll of a step found: it is over; something moved; it waits for the device or for
  // budget; its message has not arrived.
  enum class Outcome { kThrough, kMoved, kBlocked, kMissing };
  struct Location {  // plan and lane
    int plan = 0, lane = 0;
    int tag() const { return plan * kMaxLanes + lane; }
  };

  // `blocks_alone`: copies are made block by block (for tests that delay them).
  Messages(Transport* transport, const engine::Ops& ops, const OperandAddress& address,
           bool blocks_alone)
      : transport_(transport), ops_(ops), address_(address), blocks_alone_(blocks_alone) {}
  void open(WireStaging staging) { staging_ = std::move(staging); }

  // Moves the lane's current step, which posts a message or waits for one. `budget`: blocks that
  // may be copied; it is reduced by those that are.
  Outcome move(const PlanState& plan, Cursor& cursor, Location at, int& budget);

  // Returns whether messages are posted and not complete.
  bool any_under_way() const { return under_way_.load() > 0; }
  double seconds() const { return seconds_.load(); }  // with any in flight, so far
  // Returns whether a step has waited for the device since `look_again`.
  bool behind_device() const { return behind_device_.load(); }
  void look_again() { behind_device_.store(false, std::memory_order_relaxed); }

 private:
  Outcome send(const PlanState& plan, Cursor& cursor, const Step& step, Location at, int& budget);
  Outcome receive(const PlanState& plan, Cursor& cursor, const Step& step, Location at);
  Outcome wait(const PlanState& plan, Cursor& cursor, std::size_t post, const Step& message,
               Location at, int& budget);
  bool passed(const Cursor& cursor);
  bool copy(Cursor& cursor, const std::byte* from, DType type, std::byte* to, DType target,
            std::size_t count, int& budget) const;
  void posted();
  void through();

  Transport* transport_;
  const engine::Ops& ops_;
  OperandAddress address_;
  bool blocks_alone_;
  WireStaging staging_;
  engine::Clock::time_point began_{};  // post of the first message in flight
  std::atomic<int> under_way_{0};
  std::atomic<double> seconds_{0};
  std::atomic<bool> behind_device_{false};
};

}  // namespace lockstep::collectives
