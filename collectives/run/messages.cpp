// SPDX-License-Identifier: MIT
#include "collectives/run/messages.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace lockstep::collectives {
namespace {

// Returns the bytes of a message as it travels; `dtype` is the plan's.
std::size_t bytes(const Step& message, DType dtype) {
  return message.count * engine::size_of(message.wire.value_or(dtype));
}

}  // namespace

Messages::Outcome Messages::move(const PlanState& plan, Cursor& cursor, Location at, int& budget) {
  const Lane& steps = (*plan.mine)[std::size_t(at.lane)];
  const Step& step = steps[cursor.step];
  if (step.action == Action::kPostSend) return send(plan, cursor, step, at, budget);
  if (step.action == Action::kPostReceive) return receive(plan, cursor, step, at);
  const auto post = std::size_t(step.post);
  return wait(plan, cursor, post, steps[post], at, budget);
}

Messages::Outcome Messages::send(const PlanState& plan, Cursor& cursor, const Step& step,
                                 Location at, int& budget) {
  const DType dtype = plan.stage->plan.dtype;
  const std::byte* from = address_(plan, step.from[0], dtype, 0);
  if (std::byte* const place = staging_.at(at.plan, at.lane, cursor.step)) {
    if (!cursor.copied) {
      if (budget <= 0) return Outcome::kBlocked;
      const DType wire = step.wire.value_or(dtype);
      if (!copy(cursor, from, dtype, place, wire, step.count, budget)) return Outcome::kMoved;
      ops_.record_event(cursor.event);
      cursor.copied = true;
    }
    if (!passed(cursor)) return Outcome::kBlocked;
    cursor.copied = false;
    from = place;
  }
  cursor.posts[cursor.step] = transport_->post_send(step.peer, at.tag(), from, bytes(step, dtype));
  posted();
  return Outcome::kThrough;
}

Messages::Outcome Messages::receive(const PlanState& plan, Cursor& cursor, const Step& step,
                                    Location at) {
  const DType dtype = plan.stage->plan.dtype;
  std::byte* to = staging_.at(at.plan, at.lane, cursor.step);
  if (to == nullptr) {
    to = address_(plan, step.to[0], dtype, 0);
  } else if (cursor.taken && !passed(cursor)) {
    return Outcome::kBlocked;
  } else {
    cursor.taken = false;
  }
  cursor.posts[cursor.step] = transport_->post_receive(step.peer, at.tag(), to, bytes(step, dtype));
  posted();
  return Outcome::kThrough;
}

// Waits for a message; `message` is the step that posted it. A complete message may be copied in
// part already, so it is not tested again.
Messages::Outcome Messages::wait(const PlanState& plan, Cursor& cursor, std::size_t post,
                                 const Step& message, Location at, int& budget) {
  const DType dtype = plan.stage->plan.dtype;
  const bool comes = message.action == Action::kPostReceive;
  const std::byte* const place = comes ? staging_.at(at.plan, at.lane, post) : nullptr;
  if (place != nullptr && budget <= 0) return Outcome::kBlocked;
  if (cursor.element == 0 && !transport_->test(cursor.posts[post])) return Outcome::kMissing;
  if (place != nullptr) {
    std::byte* const to = address_(plan, message.to[0], dtype, 0);
    const DType wire = message.wire.value_or(dtype);
    if (!copy(cursor, place, wire, to, dtype, message.count, budget)) return Outcome::kMoved;
    ops_.record_event(cursor.event);
    cursor.taken = true;
  }
  through();
  return Outcome::kThrough;
}

// Returns whether the device has completed the lane's copies so far.
bool Messages::passed(const Cursor& cursor) {
  if (ops_.is_done(cursor.event)) return true;
  behind_device_ = true;
  return false;
}

// Copies as many blocks as the budget allows, like a reduction. Returns whether all `count`
// elements are copied.
bool Messages::copy(Cursor& cursor, const std::byte* from, DType type, std::byte* to, DType target,
                    std::size_t count, int& budget) const {
  const std::size_t most = (blocks_alone_ ? 1 : std::size_t(budget)) * engine::kBlock;
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

void Messages::posted() {
  if (under_way_.fetch_add(1, std::memory_order_relaxed) == 0) began_ = engine::Clock::now();
}

void Messages::through() {
  if (under_way_.fetch_sub(1, std::memory_order_relaxed) != 1) return;
  seconds_.fetch_add(std::chrono::duration<double>(engine::Clock::now() - began_).count());
}

}  // namespace lockstep::collectives
