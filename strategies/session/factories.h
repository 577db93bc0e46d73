// SPDX-License-Identifier: MIT
// Factories that make a strategy from a session: programs differ only in this line. Defaults of
// options depend on what the session found. All throw Error(kInvalid) for invalid options.
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
  // Number in this process; default: one, or one per GPU if `device` is "cuda".
  std::optional<int> replicas = {};
  // Device of all replicas. "cuda": the GPUs of this host, which its processes share
  // (gpu_assignment.h). "auto": "cuda" if every process of the job can have a working GPU, else
  // "cpu".
  std::string device = "cpu";
  // Replaces `replicas` and `device`: one device per replica, {"cuda:0", "cuda:1"}. Devices may be
  // repeated.
  std::vector<std::string> devices = {};
  // Library threads per replica; 0: an equal share of this host's cores.
  int threads = 0;
  // Binds replicas to disjoint processors if there are enough.
  bool bind = true;
  // Longest wait for another rank within a step; default: 60 s or 20 median steps. Before the first
  // step SessionOptions::deadline counts.
  std::optional<std::chrono::milliseconds> deadline = {};
  // Relative shares of the batch by rank, the same in all processes; empty: equal.
  std::vector<std::uint64_t> shares = {};
  // Chooses unspecified options by measured costs between the ranks, once per strategy. Costs that
  // `cost_cache` has are read. Otherwise all costs between hosts are measured, in some tenths of a
  // second. On one host only all-reduces are timed, and all other costs are assumed. If this is
  // false, all costs are assumed.
  bool measured = false;
  // Folder that keeps measured costs; empty: none are kept.
  std::filesystem::path cost_cache = {};
  // Maximum bytes of this process; 0: the available memory. If the need is larger, throws
  // Error(kMemory) before anything is allocated.
  std::size_t memory_limit = 0;
};

// Identifies this process among those that see the same GPUs of a host.
struct GpuShare {
  int number = 0, among = 1;
};
// Returns the share of GPUs for a launched job. Collective if there are several processes and the
// options ask for device "cuda" or "auto".
GpuShare share_of_gpus(Session& session, const StrategyOptions& options);
// Replaces "auto" by "cuda" or "cpu" and logs it. If `together`, it is collective like
// share_of_gpus, and all processes choose the same.
StrategyOptions with_kind(Session& session, StrategyOptions options, GpuShare share = {},
                          bool together = true);
// Replaces `device` and `replicas` by `devices`. Throws Error(kInvalid) if there are fewer GPUs
// than processes.
StrategyOptions with_devices(Session& session, StrategyOptions options, GpuShare share = {});

// Returns the library threads per replica if `processes` processes like this one share the host.
// Throws Error(kInvalid) for invalid numbers.
int threads_of(const StrategyOptions& options, int processes);

// Returns a device for each replica of this process, as named by with_devices. Throws
// Error(kInvalid) that lists the existing devices.
std::vector<engine::Device*> devices_of(Session& session, const StrategyOptions& options);
// Makes a strategy for the replicas of this process. Throws Error(kInvalid) in a job of several
// processes, which would train separately.
Mirrored mirrored(Session& session, const StrategyOptions& options = {});
// Makes a strategy for the replicas of all processes of the job. Collective.
CollectiveAllReduce collective_all_reduce(Session& session, const StrategyOptions& options = {});
// Makes either strategy by its name, as flags give it.
std::unique_ptr<engine::Strategy> make_strategy(std::string_view name, Session& session,
                                                const StrategyOptions& options = {});

}  // namespace lockstep::strategies
