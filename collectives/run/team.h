// SPDX-License-Identifier: MIT
// State that the ranks of one host share: the addresses of each rank's spaces in this process, and
// a control block that all of them map. Its words are lock-free: arrival counters, the stop word
// with its reason, and the word that sleepers sleep on. Ranks that are threads of one process share
// one Team. Each process has its own Team over the same control block. Ranks are numbers of the
// whole job; only ranks of this host have memory and counters here.
//
// Threads: all functions are thread-safe once the bases are set.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/plan/plan.h"
#include "engine/base/error.h"
#include "engine/device/process_sharing.h"
#include "engine/ops/ops.h"

namespace lockstep::collectives {

class Team {
 public:
  // Returns the bytes of a control block for so many ranks of this host and plans.
  static std::size_t control_bytes(std::size_t local_ranks, std::size_t plans);
  // Uses `control`, which is zeroed and shared and outlives the team. `local`: the ranks of this
  // host, ascending, the same list in every process of it.
  Team(std::vector<int> local, std::size_t plans, std::byte* control);

  const std::vector<int>& local() const { return local_; }
  bool is_local(int rank) const;
  std::size_t plans() const { return plans_; }
  void set_base(int rank, Space space, std::byte* base);
  std::byte* base(int rank, Space space) const;
  // Sets the kernels of a rank of this process, before it first arrives; other ranks have null.
  // They outlive all users.
  void set_ops(int rank, const engine::Ops* ops) { ops_[place(rank)] = ops; }
  const engine::Ops* ops(int rank) const { return ops_[place(rank)]; }
  // Sets the event that a rank records when it arrives, as this process has opened it. It is null
  // unless kernels of ranks of several processes are queued. Events outlive the executors.
  void set_event(int rank, const engine::ProcessEvent* event) { events_[place(rank)] = event; }
  const engine::ProcessEvent* event(int rank) const { return events_[place(rank)]; }

  // Returns how often a rank has arrived in a lane of a plan. It only grows, so execution e of a
  // plan with a arrivals per execution waits for e * a + phase.
  std::atomic<std::uint64_t>& counter(int plan, int rank, int lane) const;
  void arrive(int plan, int rank, int lane);  // counts and wakes sleepers
  // Returns whether a rank last arrived on the processor that this thread runs on. Unless it is
  // moved, it cannot arrive again while this thread keeps that busy. This is a guess, since it may
  // have been moved.
  bool beside(int rank) const;

  // Records that a rank has waited for long (liveness.h); relaxed. `waits` returns whether a rank
  // was recorded in the last `window`, in that plan or in any.
  void note_waiting(int plan, int rank, engine::Clock::time_point now);
  bool waits(int rank, engine::Clock::time_point now, std::chrono::milliseconds window) const;
  bool waits(int plan, int rank, engine::Clock::time_point now,
             std::chrono::milliseconds window) const;
  // Asks a waiting rank for which rank it waits; the asking rank waits for it in a plan. `asked`
  // returns the plan that it was last asked about in the last `window`.
  void ask(int rank, int plan, engine::Clock::time_point now);
  std::optional<int> asked(int rank, engine::Clock::time_point now,
                           std::chrono::milliseconds window) const;

  // Stops the team. The first reason wins and stays. Wakes all sleepers, in all processes.
  void stop(const engine::Error& why) noexcept;
  bool stopped() const;
  [[noreturn]] void rethrow() const;  // throws the first reason

  // Sleeps without missing a wake-up. A thread that wants to sleep makes a Sleeper, polls once more
  // what it waits for, and then sleeps. It sleeps until another thread arrives, stops or wakes
  // after the Sleeper was made, or the time is over. While nobody sleeps, an arrival costs one
  // write to a line that nobody else writes.
  class Sleeper {
   public:
    explicit Sleeper(const Team& team);
    ~Sleeper();
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;
    void sleep(std::chrono::microseconds most) const;

   private:
    const Team& team_;
    std::uint32_t seen_;
  };
  void wake() const noexcept;

 private:
  struct Control;
  std::size_t place(int rank) const;
  std::byte* behind_control() const;
  std::atomic<std::uint32_t>& processor(int rank) const;
  std::atomic<std::uint64_t>& question(int rank) const;
  std::atomic<std::uint32_t>& waited(int plan, int rank) const;
  std::vector<int> local_;
  std::vector<int> places_;  // by rank: index in local_; -1: other host
  std::size_t plans_;
  std::vector<std::array<std::byte*, kSpaces>> bases_;
  std::vector<const engine::Ops*> ops_;
  std::vector<const engine::ProcessEvent*> events_;
  Control* control_;
};

}  // namespace lockstep::collectives
