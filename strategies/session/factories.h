// SPDX-License-Identifier: MIT
// From a session to a strategy: the one line in which programs differ. Options that were not given
// are chosen from what the session found. All throw Error(kInvalid) for what cannot be.
#pragma once
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/session/session.h"
#include "strategies/synchronous/collective_all_reduce.h"
#include "strategies/synchronous/mirrored.h"

namespace lockstep::strategies {

struct StrategyOptions {
  StepChoices step = {};
  std::optional<int> replicas = {};  // of this process; else one, or one a GPU of "cuda"
  // Of all of them. "cuda": the GPUs of this host, which its processes share (gpu_assignment.h).
  // "auto": "cuda" where every process of the job can have a GPU that works, else "cpu".
  std::string device = "cpu";
  // A device for each replica instead of these two: {"cuda:0", "cuda:1"}. One may stand there more
  // than once.
  std::vector<std::string> devices = {};
  int threads = 0;   // library threads of a replica; 0: this host's cores shared equally
  bool bind = true;  // replicas to processors of their own, where that fits
  std::optional<std::chrono::milliseconds> deadline = {};  // else 60 s or 20 median steps
  // Of the batch, by rank, the same in all processes; empty: equal.
  std::vector<std::uint64_t> shares = {};
  // For what is not asked for: choose by what the ranks are measured to cost each other, once a
  // strategy: between hosts now, in some tenths of a second, on one host before, if `cost_cache`
  // has it. Else, and where this is false, by costs that are assumed.
  bool measured = false;
  std::filesystem::path cost_cache = {};  // folder that keeps measured costs; empty: none are kept
  // Bytes of this process in all; 0: what there is. More is refused before any is taken, with
  // Error(kMemory).
  std::size_t memory_limit = 0;
};

// This process among those that see the same GPUs of a host.
struct GpuShare {
  int number = 0, among = 1;
};
// Of the processes of a job that a launcher started. Collective where there are several and the
// options are for device "cuda" or "auto".
GpuShare share_of_gpus(Session& session, const StrategyOptions& options);
// The options with "cuda" or "cpu" in place of "auto", which is logged. Collective likewise.
StrategyOptions with_kind(Session& session, StrategyOptions options, GpuShare share = {});
// The options with `devices` in place of `device` and `replicas`. Error(kInvalid) where GPUs are
// fewer than processes.
StrategyOptions with_devices(Session& session, StrategyOptions options, GpuShare share = {});

// Library threads of a replica, where so many such processes share this host. Refuses replicas and
// threads that cannot be.
int threads_of(const StrategyOptions& options, int processes);

// A device for each replica of this process, as options with_devices name them. Error(kInvalid)
// lists what there is.
std::vector<engine::Device*> devices_of(Session& session, const StrategyOptions& options);
// The replicas of this one process. Refuses a job of several processes, which would train apart.
Mirrored mirrored(Session& session, const StrategyOptions& options = {});
// The replicas of all processes of the job. Collective.
CollectiveAllReduce collective_all_reduce(Session& session, const StrategyOptions& options = {});
// Either by name, as flags give it.
std::unique_ptr<engine::Strategy> make_strategy(std::string_view name, Session& session,
                                                const StrategyOptions& options = {});

}  // namespace lockstep::strategies
