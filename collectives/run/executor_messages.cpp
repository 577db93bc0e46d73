// SPDX-License-Identifier: MIT
// Messages of a lane. Where they do not travel from and to their operands (WireStaging), what is
// sent is copied first, and what came is copied after. A device queues these copies among its
// reductions: a mark behind them tells when what is sent is there, and when a place is free for the
// next message to come; nobody waits for it, the lane is looked at again.
#include <algorithm>

#include "collectives/run/executor.h"

namespace lockstep::collectives {

Executor::Went Executor::message(Entry& entry, Cursor& cursor, const Lane& steps, Place at,
                                 int& budget) {
  const Step& step = steps[cursor.step];
  if (step.action == Action::kPostSend) return send(entry, cursor, step, at, budget);
  if (step.action == Action::kPostReceive) return receive(entry, cursor, step, at);
  const auto post = std::size_t(step.post);
  return wait_for(entry, cursor, post, steps[post], at, budget);
}

Executor::Went Executor::send(Entry& entry, Cursor& cursor, const Step& step, Place at,
                              int& budget) {
  const Plan& plan = entry.stage->plan;
  const std::byte* from = address(entry, step.from[0], plan.dtype, 0);
  if (std::byte* const place = staging_.at(at.plan, at.lane, cursor.step)) {
    if (!cursor.copied) {
      if (budget <= 0) return Went::kNowhere;
      const DType wire = step.wire.value_or(plan.dtype);
      if (!convert(cursor, from, plan.dtype, place, wire, step.count, budget)) return Went::kOn;
      ops_.mark(cursor.mark);
      cursor.copied = true;
    }
    if (!passed(cursor)) return Went::kNowhere;
    cursor.copied = false;
    from = place;
  }
  cursor.posts[cursor.step] = transport_->post_send(step.peer, at.tag(), from, bytes(plan, step));
  posted();
  return Went::kThrough;
}

Executor::Went Executor::receive(Entry& entry, Cursor& cursor, const Step& step, Place at) {
  const Plan& plan = entry.stage->plan;
  std::byte* to = staging_.at(at.plan, at.lane, cursor.step);
  if (to == nullptr) {
    to = address(entry, step.to[0], plan.dtype, 0);
  } else if (cursor.taken && !passed(cursor)) {
    return Went::kNowhere;
  } else {
    cursor.taken = false;
  }
  cursor.posts[cursor.step] = transport_->post_receive(step.peer, at.tag(), to, bytes(plan, step));
  posted();
  return Went::kThrough;
}

// `message`: the step that posted it. Once it is through, and some of it may be copied already, it
// is not asked for again.
Executor::Went Executor::wait_for(Entry& entry, Cursor& cursor, std::size_t post,
                                  const Step& message, Place at, int& budget) {
  const Plan& plan = entry.stage->plan;
  const bool comes = message.action == Action::kPostReceive;
  const std::byte* const place = comes ? staging_.at(at.plan, at.lane, post) : nullptr;
  if (place != nullptr && budget <= 0) return Went::kNowhere;
  if (cursor.element == 0 && !transport_->test(cursor.posts[post])) {
    look(entry, at.plan, at.lane);
    return Went::kNowhere;
  }
  if (place != nullptr) {
    std::byte* const to = address(entry, message.to[0], plan.dtype, 0);
    const DType wire = message.wire.value_or(plan.dtype);
    if (!convert(cursor, place, wire, to, plan.dtype, message.count, budget)) return Went::kOn;
    ops_.mark(cursor.mark);
    cursor.taken = true;
  }
  through();
  return Went::kThrough;
}

std::size_t Executor::bytes(const Plan& plan, const Step& message) {
  return message.count * engine::size_of(message.wire.value_or(plan.dtype));
}

// Whether the device is through with the lane's copies so far.
bool Executor::passed(const Cursor& cursor) {
  if (ops_.has_passed(cursor.mark)) return true;
  behind_device_ = true;
  return false;
}

// As many blocks as there is budget, as of a reduction; true when all `count` elements are copied.
bool Executor::convert(Cursor& cursor, const std::byte* from, DType type, std::byte* to,
                       DType target, std::size_t count, int& budget) const {
  const std::size_t most = (options_.hook ? 1 : std::size_t(budget)) * engine::kBlock;
  const std::size_t part = std::min(count - cursor.element, most);
  from += cursor.element * engine::size_of(type);
  to += cursor.element * engine::size_of(target);
  engine::ReduceArguments arguments;
  arguments.dtype = type;
  if (target != type) arguments.target = target;
  arguments.from = {&from, 1};
  arguments.to = {&to, 1};
  arguments.count = part;
  ops_.reduce(arguments);
  budget -= int((part + engine::kBlock - 1) / engine::kBlock);
  cursor.element += part;
  if (cursor.element < count) return false;
  cursor.element = 0;
  return true;
}

// Both under the lock.
void Executor::posted() {
  if (messages_.fetch_add(1, std::memory_order_relaxed) == 0) sent_ = engine::Clock::now();
}

void Executor::through() {
  if (messages_.fetch_sub(1, std::memory_order_relaxed) != 1) return;
  flown_.fetch_add(std::chrono::duration<double>(engine::Clock::now() - sent_).count());
}

}  // namespace lockstep::collectives
