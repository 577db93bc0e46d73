// SPDX-License-Identifier: MIT
// What the ranks of one host share: where each one's spaces lie in this process, and a control
// block of lock-free words that all of them map: arrival counters, the word to stop with its
// reason, and the word that sleepers sleep on. Ranks that are threads of one process share one
// Team; each process has its own Team over the same control block. Ranks are numbers of the whole
// job; only ranks of this host may be asked for memory or counters.
//
// Threads: everything may be called from any thread once the bases are set.
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
  // Bytes of a control block for so many ranks of this host and plans.
  static std::size_t control_bytes(std::size_t local_ranks, std::size_t plans);
  // `local`: the ranks of this host, ascending, the same list in every process of it.
  // `control`: zeroed, shared, outlives the team.
  Team(std::vector<int> local, std::size_t plans, std::byte* control);

  const std::vector<int>& local() const { return local_; }
  bool is_local(int rank) const;
  std::size_t plans() const { return plans_; }
  void set_base(int rank, Space space, std::byte* base);
  std::byte* base(int rank, Space space) const;
  // The kernels of a rank of this process, which sets them before it first arrives; null of others.
  // They outlive what asks.
  void set_ops(int rank, const engine::Ops* ops) { ops_[place(rank)] = ops; }
  const engine::Ops* ops(int rank) const { return ops_[place(rank)]; }
  // The event that a rank records when it arrives, as this process has opened it. Null, unless
  // kernels of ranks of several processes are queued. Events outlive the executors.
  void set_event(int rank, const engine::ProcessEvent* event) { events_[place(rank)] = event; }
  const engine::ProcessEvent* event(int rank) const { return events_[place(rank)]; }

  // How often a rank arrived in a lane of a plan, since the beginning: it only grows, so execution
  // e of a plan with a arrivals per execution waits for e * a + phase.
  std::atomic<std::uint64_t>& counter(int plan, int rank, int lane) const;
  void arrive(int plan, int rank, int lane);  // counts and wakes sleepers
  // Whether a rank last arrived on the processor that this thread runs on: it will not arrive again
  // while this thread keeps that busy, unless it is moved. A guess, since it may have been.
  bool beside(int rank) const;

  // Ranks that have waited for long note it here, relaxed (liveness.h). The other functions return
  // whether a rank noted it in the last `window`, in that plan or in any.
  void note_waiting(int plan, int rank, engine::Clock::time_point now);
  bool waits(int rank, engine::Clock::time_point now, std::chrono::milliseconds window) const;
  bool waits(int plan, int rank, engine::Clock::time_point now,
             std::chrono::milliseconds window) const;
  // A rank that waits is asked whom it waits for, by one that waits for it in a plan; the plan that
  // it was last asked about in the last `window`.
  void ask(int rank, int plan, engine::Clock::time_point now);
  std::optional<int> asked(int rank, engine::Clock::time_point now,
                           std::chrono::milliseconds window) const;

  // The first reason wins and stays. Wakes all sleepers, in all processes.
  void stop(const engine::Error& why) noexcept;
  bool stopped() const;
  [[noreturn]] void rethrow() const;  // throws the first reason

  // Who wants to sleep makes a Sleeper, then looks once more at what it waits for, then sleeps:
  // until somebody arrives, stops or wakes after the Sleeper was made, or the time is over. While
  // nobody sleeps, an arrival costs one write to a line that nobody else writes.
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
  std::vector<int> places_;  // by rank: where in local_; -1: of another host
  std::size_t plans_;
  std::vector<std::array<std::byte*, kSpaces>> bases_;
  std::vector<const engine::Ops*> ops_;
  std::vector<const engine::ProcessEvent*> events_;
  Control* control_;
};

}  // namespace lockstep::collectives
