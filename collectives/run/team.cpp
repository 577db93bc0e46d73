// SPDX-License-Identifier: MIT
#include "collectives/run/team.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <span>
#include <thread>

#include "engine/base/error_bytes.h"

namespace lockstep::collectives {
namespace {

using Counter = std::atomic<std::uint64_t>;
using Word = std::atomic<std::uint32_t>;
static_assert(Counter::is_always_lock_free && Word::is_always_lock_free);

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kReasonBytes = 1024;
// Time that a reader of the reason waits for its writer, which may have died between the two
// stores.
constexpr std::chrono::milliseconds kWriting{200};
// Time by which a word of another rank may be newer than this rank's reading of the clock.
constexpr std::chrono::milliseconds kAhead{60000};

// States of the stop word.
constexpr std::uint32_t kRunning = 0, kStopping = 1, kStopped = 2;

// Calls futex, not its private form: sleepers and wakers are threads of several processes. The
// kernel compares the word with `value` and puts the thread to sleep in one atomic step.
long futex(const Word& word, int operation, std::uint32_t value, const timespec* most) noexcept {
  return syscall(SYS_futex, reinterpret_cast<const std::uint32_t*>(&word), operation, value, most,
                 nullptr, 0);
}

// Returns milliseconds, the same in all processes of a host; 0 means never. They wrap around after
// 49 days.
std::uint32_t stamp(engine::Clock::time_point now) {
  const auto time =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  return std::max<std::uint32_t>(std::uint32_t(time), 1);
}

// Returns whether `then` is in the window. Another rank may have read the clock later, since this
// one may have been kept from running after it did.
bool within(std::uint32_t then, engine::Clock::time_point now, std::chrono::milliseconds window) {
  const std::uint32_t age = stamp(now) - then, ahead = then - stamp(now);
  return then != 0 && (age <= window.count() || ahead <= kAhead.count());
}

std::size_t waiting_bytes(std::size_t plans) {
  return (sizeof(std::uint64_t) + sizeof(std::uint32_t) * plans + kCacheLine - 1) / kCacheLine *
         kCacheLine;
}

// Returns the processor's number from 1, or 0 if it is unknown.
std::uint32_t this_processor() {
  return std::uint32_t(sched_getcpu() + 1);
}

}  // namespace

// Lies at the beginning of the control block. Three arrays follow it. The first has one line per
// rank: the number of its processor, which it writes when that changes. The second has the
// counters, kMaxLanes per (plan, rank): two cache lines with one writer. The third has lines per
// rank: the question to it and, per plan, when it last waited there.
struct Team::Control {
  alignas(kCacheLine) Word stopped;
  std::atomic<std::size_t> bytes;  // size of the reason
  std::array<std::byte, kReasonBytes> why;
  alignas(kCacheLine) Word events;
  alignas(kCacheLine) Word sleepers;
};

std::size_t Team::control_bytes(std::size_t local_ranks, std::size_t plans) {
  return sizeof(Control) + kCacheLine * local_ranks +
         sizeof(Counter) * local_ranks * plans * kMaxLanes + waiting_bytes(plans) * local_ranks;
}

Team::Team(std::vector<int> local, std::size_t plans, std::byte* control)
    : local_(std::move(local)), plans_(plans), control_(reinterpret_cast<Control*>(control)) {
  engine::require(!local_.empty() && std::is_sorted(local_.begin(), local_.end()) &&
                      std::adjacent_find(local_.begin(), local_.end()) == local_.end(),
                  "a team needs the ranks of its host, ascending, each once; got [{}]",
                  fmt::join(local_, " "));
  engine::require(control && reinterpret_cast<std::uintptr_t>(control) % kCacheLine == 0,
                  "the control block of a team must be aligned to {} bytes", kCacheLine);
  bases_.resize(local_.size());
  ops_.resize(local_.size());
  events_.resize(local_.size());
  places_.assign(std::size_t(local_.back()) + 1, -1);
  for (std::size_t i = 0; i < local_.size(); ++i) places_[std::size_t(local_[i])] = int(i);
}

std::size_t Team::place(int rank) const {
  engine::invariant(is_local(rank), "asked for a rank of another host");
  return std::size_t(places_[std::size_t(rank)]);
}

bool Team::is_local(int rank) const {
  return rank >= 0 && std::size_t(rank) < places_.size() && places_[std::size_t(rank)] >= 0;
}

void Team::set_base(int rank, Space space, std::byte* base) {
  bases_[place(rank)][std::size_t(space)] = base;
}

std::byte* Team::base(int rank, Space space) const {
  return bases_[place(rank)][std::size_t(space)];
}

std::atomic<std::uint64_t>& Team::counter(int plan, int rank, int lane) const {
  engine::invariant(plan >= 0 && std::size_t(plan) < plans_ && lane >= 0 && lane < kMaxLanes,
                    "asked for a counter of no plan");
  const std::size_t index =
      (std::size_t(plan) * local_.size() + place(rank)) * kMaxLanes + std::size_t(lane);
  return reinterpret_cast<Counter*>(behind_control() + kCacheLine * local_.size())[index];
}

std::byte* Team::behind_control() const {
  return reinterpret_cast<std::byte*>(control_ + 1);
}

std::atomic<std::uint32_t>& Team::processor(int rank) const {
  return *reinterpret_cast<Word*>(behind_control() + kCacheLine * place(rank));
}

std::atomic<std::uint64_t>& Team::question(int rank) const {
  std::byte* const behind_counters = behind_control() + kCacheLine * local_.size() +
                                     sizeof(Counter) * local_.size() * plans_ * kMaxLanes;
  return *reinterpret_cast<Counter*>(behind_counters + waiting_bytes(plans_) * place(rank));
}

std::atomic<std::uint32_t>& Team::waited(int plan, int rank) const {
  engine::invariant(plan >= 0 && std::size_t(plan) < plans_, "asked for a word of no plan");
  return reinterpret_cast<Word*>(&question(rank) + 1)[plan];
}

void Team::note_waiting(int plan, int rank, engine::Clock::time_point now) {
  waited(plan, rank).store(stamp(now), std::memory_order_relaxed);
}

bool Team::waits(int plan, int rank, engine::Clock::time_point now,
                 std::chrono::milliseconds window) const {
  return within(waited(plan, rank).load(std::memory_order_relaxed), now, window);
}

bool Team::waits(int rank, engine::Clock::time_point now, std::chrono::milliseconds window) const {
  for (std::size_t plan = 0; plan < plans_; ++plan)
    if (waits(int(plan), rank, now, window)) return true;
  return false;
}

void Team::ask(int rank, int plan, engine::Clock::time_point now) {
  question(rank).store(std::uint64_t(plan) << 32 | stamp(now), std::memory_order_relaxed);
}

std::optional<int> Team::asked(int rank, engine::Clock::time_point now,
                               std::chrono::milliseconds window) const {
  const std::uint64_t asked = question(rank).load(std::memory_order_relaxed);
  if (!within(std::uint32_t(asked), now, window)) return {};
  return int(asked >> 32);
}

bool Team::beside(int rank) const {
  const std::uint32_t here = this_processor();
  return here != 0 && processor(rank).load(std::memory_order_relaxed) == here;
}

void Team::arrive(int plan, int rank, int lane) {
  Word& mine = processor(rank);
  const std::uint32_t here = this_processor();
  if (mine.load(std::memory_order_relaxed) != here) mine.store(here, std::memory_order_relaxed);
  counter(plan, rank, lane).fetch_add(1);  // sequentially consistent: see Sleeper
  wake();
}

void Team::stop(const engine::Error& why) noexcept {
  std::uint32_t running = kRunning;
  if (!control_->stopped.compare_exchange_strong(running, kStopping)) return;
  control_->bytes.store(engine::write_error(why, control_->why), std::memory_order_relaxed);
  control_->stopped.store(kStopped, std::memory_order_release);
  wake();
}

bool Team::stopped() const {
  return control_->stopped.load() != kRunning;
}

void Team::rethrow() const {
  const auto end = engine::Clock::now() + kWriting;
  while (control_->stopped.load(std::memory_order_acquire) != kStopped) {
    if (engine::Clock::now() > end)
      engine::fail(engine::Code::kPeerLost,
                   "a rank of this host stopped the others and died before it said why");
    std::this_thread::yield();
  }
  const std::size_t bytes = control_->bytes.load(std::memory_order_relaxed);
  const auto why =
      engine::read_error(std::span(control_->why).first(std::min(bytes, kReasonBytes)));
  engine::invariant(why.has_value(), "the reason to stop is an error");
  throw engine::Error(*why);
}

// A sleeper counts itself, notes the events, then polls the counters. A waker counts an arrival,
// then looks for sleepers. These have one order (sequentially consistent), so either the waker sees
// the sleeper, or the sleeper the arrival. A waker that sees a sleeper counts an event, and the
// kernel puts no thread to sleep that noted fewer.
Team::Sleeper::Sleeper(const Team& team) : team_(team) {
  team_.control_->sleepers.fetch_add(1);
  seen_ = team_.control_->events.load();
}

Team::Sleeper::~Sleeper() {
  team_.control_->sleepers.fetch_sub(1);
}

void Team::Sleeper::sleep(std::chrono::microseconds most) const {
  if (most.count() <= 0 || team_.stopped()) return;
  const timespec limit{time_t(most.count() / 1000000), long(most.count() % 1000000) * 1000};
  futex(team_.control_->events, FUTEX_WAIT, seen_, &limit);
}

void Team::wake() const noexcept {
  if (control_->sleepers.load() == 0) return;
  control_->events.fetch_add(1);
  futex(control_->events, FUTEX_WAKE, INT_MAX, nullptr);
}

}  // namespace lockstep::collectives
