// SPDX-License-Identifier: MIT
// Fibers run the threads of a block one after the other. A fiber that must wait returns to the
// scheduler, which resumes a ready fiber or lets another one start further threads. A kernel that
// never waits therefore needs one fiber, and a kernel with barriers needs one per thread of a
// block. Fibers are kept for later blocks and calls.
#include "test/engine/cuda/emulator.h"

#include <fmt/core.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "engine/base/error.h"

// The sanitizers define these functions; they are null in builds without sanitizers.
extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** fake_stack, const void* stack,
                                                  std::size_t bytes);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* fake_stack, const void** old_stack,
                                                   std::size_t* old_bytes);
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void* __tsan_create_fiber(unsigned flags);
[[gnu::weak]] void __tsan_destroy_fiber(void* fiber);
[[gnu::weak]] void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}

namespace lockstep::engine::cuda {
namespace {

constexpr unsigned kWarp = 32, kMostThreads = 1024;
constexpr std::size_t kStackBytes = std::size_t(256) << 10, kMostShared = std::size_t(48) << 10;

struct Copy {
  std::byte* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
};

// Stores where a flow of control resumes. The two system calls of swapcontext for signals would
// take most of the time of kernels with barriers.
using Flow = std::array<void*, 5>;

// The compiler needs the two halves in separate functions. The thread sanitizer counts calls and
// returns per fiber, and calls that switch fibers never return.
[[noreturn, gnu::noinline, gnu::no_sanitize("address", "thread")]] void go_on(Flow& to) {
  __builtin_longjmp(to.data(), 1);
}

// Continues at `to`; returns when something continues at `from`.
[[gnu::noinline, gnu::no_sanitize("address", "thread")]] void change(Flow& from, Flow& to) {
  if (__builtin_setjmp(from.data()) == 0) go_on(to);
}

[[gnu::noinline, gnu::no_sanitize("address", "thread")]] void begin(Flow& from,
                                                                    const ucontext_t& to) {
  if (__builtin_setjmp(from.data()) == 0) setcontext(&to);
}

struct Fiber {
  Fiber() : stack(new std::byte[kStackBytes]) {
    if (__tsan_create_fiber != nullptr) sanitizer = __tsan_create_fiber(0);
  }
  ~Fiber() {
    if (__tsan_destroy_fiber != nullptr) __tsan_destroy_fiber(sanitizer);
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  std::unique_ptr<std::byte[]> stack;
  ucontext_t context{};  // entry point
  Flow flow{};
  bool begun = false;
  void* sanitizer = nullptr;
  unsigned thread = 0;                      // the thread that it runs
  std::uint64_t received = 0;               // by a shuffle
  std::deque<std::vector<Copy>> copies{1};  // by group; the last one grows
};

// Holds the lanes of a warp that have arrived at a shuffle or a joint operation.
struct Warp {
  std::array<Fiber*, kWarp> lanes{};  // null: has not arrived
  std::array<std::uint64_t, kWarp> given{};
  std::array<void*, kWarp> together{};
  void (*act)(const std::array<void*, kWarp>&) = nullptr;  // null: a shuffle
  unsigned arrived = 0;
  Shuffle shuffle;
};

class Emulator {
 public:
  Emulator() = default;
  ~Emulator();
  Emulator(const Emulator&) = delete;
  Emulator& operator=(const Emulator&) = delete;
  void run(LaunchShape shape, const std::function<void()>& body);
  const EmulatedPlace& place() const {
    invariant(body_ != nullptr, "emulator: a kernel's question from outside of a kernel");
    return place_;
  }
  void barrier();
  std::uint64_t exchange(std::uint64_t value, Shuffle shuffle);
  void together(void* mine, void (*act)(const std::array<void*, kWarp>&));
  Fiber& running() { return *running_; }
  std::byte* window() { return window_.data(); }
  void* shared(const void* key, std::size_t bytes);

 private:
  static void work(unsigned high, unsigned low);
  void take_threads(Fiber& self);
  void run_block();
  void draw_order();
  unsigned rank(unsigned thread) const { return ranks_[thread / kWarp]; }
  Fiber* choose();
  void may_go_on(Fiber* fiber);
  Fiber* idle_fiber();
  void add_fiber();
  void resume(Fiber& fiber);
  void suspend(Fiber& self);
  [[noreturn]] void leave();
  [[noreturn]] void stop_stuck() const;

  const std::function<void()>* body_ = nullptr;
  EmulatedPlace place_;
  std::minstd_rand random_{1};
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  bool ending_ = false;
  std::map<const void*, std::vector<std::byte>> shared_;
  std::size_t shared_bytes_ = 0;
  std::vector<std::byte> window_;

  // State of the block.
  std::vector<unsigned> order_;  // in which threads start
  std::vector<unsigned> ranks_;  // of warps: lowest first, ties at random
  std::size_t started_ = 0, finished_ = 0;
  std::array<std::vector<Fiber*>, kMostThreads / kWarp + 1> ready_;  // by rank
  std::uint64_t ranks_ready_ = 0;  // one bit per rank with ready fibers
  std::vector<Fiber*> at_barrier_;
  std::vector<Warp> warps_;

  // State of the scheduler and the running fiber.
  Flow flow_{};
  Fiber* running_ = nullptr;
  void* sanitizer_ = nullptr;
  const void* stack_ = nullptr;
  std::size_t stack_bytes_ = 0;
};

// Ends all fibers, which are idle: the address sanitizer frees its memory of a fiber (megabytes)
// only if the fiber ends.
Emulator::~Emulator() {
  ending_ = true;
  for (const std::unique_ptr<Fiber>& fiber : fibers_) resume(*fiber);
}

void Emulator::run(LaunchShape shape, const std::function<void()>& body) {
  invariant(body_ == nullptr, "emulator: a kernel within a kernel");
  invariant(shape.threads > 0 && shape.threads % kWarp == 0 && shape.threads <= kMostThreads,
            "emulator: blocks are whole warps of 32 threads, at most 1024");
  body_ = &body;
  place_ = {0, shape.blocks, 0, shape.block_rows, 0, shape.threads};
  window_.resize(shape.shared);
  if (__tsan_get_current_fiber != nullptr) sanitizer_ = __tsan_get_current_fiber();
  std::vector<std::uint64_t> blocks(std::size_t(shape.blocks) * shape.block_rows);
  std::iota(blocks.begin(), blocks.end(), std::uint64_t(0));
  std::shuffle(blocks.begin(), blocks.end(), random_);
  for (const std::uint64_t block : blocks) {
    place_.block = unsigned(block % shape.blocks);
    place_.block_row = unsigned(block / shape.blocks);
    run_block();
  }
  shared_.clear();
  shared_bytes_ = 0;
  body_ = nullptr;
}

void Emulator::run_block() {
  for (auto& [key, bytes] : shared_) std::fill(bytes.begin(), bytes.end(), std::byte(0xff));
  std::fill(window_.begin(), window_.end(), std::byte(0xff));
  draw_order();
  warps_.assign(place_.threads / kWarp, Warp{});
  started_ = finished_ = 0;
  while (finished_ < order_.size()) {
    Fiber* const next = choose();
    if (next == nullptr) stop_stuck();
    resume(*next);
  }
}

// Draws the order of the threads. In half of the blocks they run in any order. In the others, each
// warp runs as far as it can before the next one. Both small and large distances between threads
// thus occur.
void Emulator::draw_order() {
  order_.resize(place_.threads);
  std::iota(order_.begin(), order_.end(), 0u);
  std::shuffle(order_.begin(), order_.end(), random_);
  ranks_.assign(place_.threads / kWarp, 0);
  if (random_() % 2 == 0) return;
  std::iota(ranks_.begin(), ranks_.end(), 1u);
  std::shuffle(ranks_.begin(), ranks_.end(), random_);
  std::stable_sort(order_.begin(), order_.end(),
                   [&](unsigned a, unsigned b) { return rank(a) < rank(b); });
}

// Returns a ready fiber, or an idle one for threads that have not started; null if there is
// neither.
Fiber* Emulator::choose() {
  const bool fresh = started_ < order_.size();
  if (ranks_ready_ == 0) return fresh ? idle_fiber() : nullptr;
  const auto best = unsigned(std::countr_zero(ranks_ready_));
  if (fresh) {
    const unsigned first = rank(order_[started_]);
    if (first < best || (first == best && random_() % 2 == 0)) return idle_fiber();
  }
  std::vector<Fiber*>& ready = ready_[best];
  std::swap(ready[random_() % ready.size()], ready.back());
  Fiber* const next = ready.back();
  ready.pop_back();
  if (ready.empty()) ranks_ready_ &= ~(std::uint64_t(1) << best);
  return next;
}

void Emulator::may_go_on(Fiber* fiber) {
  const unsigned its = rank(fiber->thread);
  ready_[its].push_back(fiber);
  ranks_ready_ |= std::uint64_t(1) << its;
}

Fiber* Emulator::idle_fiber() {
  if (idle_.empty()) add_fiber();
  Fiber* const fiber = idle_.back();
  idle_.pop_back();
  return fiber;
}

void Emulator::add_fiber() {
  Fiber& fiber = *fibers_.emplace_back(std::make_unique<Fiber>());
  invariant(getcontext(&fiber.context) == 0, "emulator: getcontext failed");
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  // makecontext takes the pointer in two halves.
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&fiber.context, reinterpret_cast<void (*)()>(&Emulator::work), 2,
              unsigned(self >> 32), unsigned(self));
  idle_.push_back(&fiber);
}

void Emulator::work(unsigned high, unsigned low) {
  auto& self = *reinterpret_cast<Emulator*>(std::uintptr_t(high) << 32 | low);
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(nullptr, &self.stack_, &self.stack_bytes_);
  }
  self.take_threads(*self.running_);
}

void Emulator::take_threads(Fiber& self) {
  while (!ending_) {
    while (started_ < order_.size()) {
      self.thread = order_[started_++];
      place_.thread = self.thread;
      self.copies.assign(1, {});
      (*body_)();
      ++finished_;
    }
    idle_.push_back(&self);
    suspend(self);
  }
  leave();
}

// Ends the fiber. The sanitizer's memory is gone after the first call, so this function's variables
// must not lie there.
[[gnu::no_sanitize("address")]] void Emulator::leave() {
  if (__sanitizer_start_switch_fiber != nullptr)
    __sanitizer_start_switch_fiber(nullptr, stack_, stack_bytes_);
  if (__tsan_switch_to_fiber != nullptr) __tsan_switch_to_fiber(sanitizer_, 0);
  go_on(flow_);
}

void Emulator::resume(Fiber& fiber) {
  running_ = &fiber;
  place_.thread = fiber.thread;
  void* fake_stack = nullptr;
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(&fake_stack, fiber.stack.get(), kStackBytes);
  }
  if (__tsan_switch_to_fiber != nullptr) __tsan_switch_to_fiber(fiber.sanitizer, 0);
  if (std::exchange(fiber.begun, true)) {
    change(flow_, fiber.flow);
  } else {
    begin(flow_, fiber.context);
  }
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
  }
}

// Returns to the scheduler until it resumes this fiber.
void Emulator::suspend(Fiber& self) {
  void* fake_stack = nullptr;
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(&fake_stack, stack_, stack_bytes_);
  }
  if (__tsan_switch_to_fiber != nullptr) __tsan_switch_to_fiber(sanitizer_, 0);
  change(self.flow, flow_);
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(fake_stack, &stack_, &stack_bytes_);
  }
}

void Emulator::barrier() {
  Fiber& self = *running_;
  at_barrier_.push_back(&self);
  if (at_barrier_.size() == order_.size()) {  // all others wait
    for (Fiber* const fiber : at_barrier_) may_go_on(fiber);
    at_barrier_.clear();
  }
  suspend(self);
}

std::uint64_t Emulator::exchange(std::uint64_t value, Shuffle shuffle) {
  Fiber& self = *running_;
  const unsigned lane = self.thread % kWarp;
  Warp& warp = warps_[self.thread / kWarp];
  invariant(shuffle.kind == Shuffle::Kind::kDown || shuffle.amount < kWarp,
            "emulator: a shuffle with a lane that no warp has");
  if (warp.arrived == 0) warp.shuffle = shuffle;
  invariant(warp.shuffle == shuffle && warp.act == nullptr,
            "emulator: lanes of a warp that shuffle in different ways");
  warp.lanes[lane] = &self;
  warp.given[lane] = value;
  if (++warp.arrived == kWarp) {
    for (unsigned to = 0; to < kWarp; ++to) {
      const bool down = shuffle.kind == Shuffle::Kind::kDown;
      const unsigned from = down ? to + shuffle.amount : to ^ shuffle.amount;
      warp.lanes[to]->received = warp.given[from < kWarp ? from : to];
      may_go_on(warp.lanes[to]);
    }
    warp = Warp{};
  }
  suspend(self);
  return self.received;
}

void Emulator::together(void* mine, void (*act)(const std::array<void*, kWarp>&)) {
  Fiber& self = *running_;
  const unsigned lane = self.thread % kWarp;
  Warp& warp = warps_[self.thread / kWarp];
  if (warp.arrived == 0) warp.act = act;
  invariant(warp.act == act, "emulator: lanes of a warp that do different things together");
  warp.lanes[lane] = &self;
  warp.together[lane] = mine;
  if (++warp.arrived == kWarp) {
    act(warp.together);
    for (Fiber* const each : warp.lanes) may_go_on(each);
    warp = Warp{};
  }
  suspend(self);
}

void* Emulator::shared(const void* key, std::size_t bytes) {
  auto& array = shared_[key];
  if (array.empty()) {
    shared_bytes_ += bytes;
    if (shared_bytes_ > kMostShared) {
      broken(fmt::format("emulator: a block shares {} bytes; a GPU has {}", shared_bytes_,
                         kMostShared));
    }
    array.assign(bytes, std::byte(0xff));
  }
  return array.data();
}

void Emulator::stop_stuck() const {
  for (std::size_t i = 0; i < warps_.size(); ++i) {
    const Warp& warp = warps_[i];
    if (warp.arrived == 0) continue;
    const auto missing = std::find(warp.lanes.begin(), warp.lanes.end(), nullptr);
    broken(
        fmt::format("emulator: block {} of row {}: {} lanes of warp {} wait at a shuffle that "
                    "the others miss, such as lane {}",
                    place_.block, place_.block_row, warp.arrived, i, missing - warp.lanes.begin()));
  }
  broken(fmt::format("emulator: block {} of row {}: {} threads wait at a barrier, {} have left",
                     place_.block, place_.block_row, at_barrier_.size(), finished_));
}

Emulator& emulator() {
  thread_local Emulator emulator;
  return emulator;
}

}  // namespace

void emulate(LaunchShape shape, const std::function<void()>& body) {
  emulator().run(shape, body);
}

const EmulatedPlace& emulated_place() {
  return emulator().place();
}

void emulated_barrier() {
  emulator().barrier();
}

std::uint64_t emulated_exchange(std::uint64_t value, Shuffle shuffle) {
  return emulator().exchange(value, shuffle);
}

void emulated_together(void* mine, void (*work)(const std::array<void*, 32>& lanes)) {
  emulator().together(mine, work);
}

void emulated_copy(std::byte* to, const void* from, std::size_t bytes) {
  invariant(
      (reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % 16 == 0,
      "emulator: a copy that is not aligned");
  emulator().running().copies.back().push_back({to, from, bytes});
}

void emulated_commit() {
  emulator().running().copies.emplace_back();
}

void emulated_wait(unsigned left) {
  auto& groups = emulator().running().copies;
  for (; groups.size() > left + 1; groups.pop_front())
    for (const Copy& copy : groups.front()) std::memcpy(copy.to, copy.from, copy.bytes);
}

std::byte* emulated_window() {
  return emulator().window();
}

void* emulated_shared(const void* key, std::size_t bytes) {
  return emulator().shared(key, bytes);
}

}  // namespace lockstep::engine::cuda
