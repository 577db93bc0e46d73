// SPDX-License-Identifier: MIT
// The options of a synchronous strategy on one process. Plain values; the devices and the profiler
// must outlive the strategy.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "collectives/job/network.h"
#include "engine/base/log.h"
#include "engine/device/device.h"
#include "engine/device/gpu_topology.h"
#include "engine/train/strategy.h"
#include "strategies/synchronous/memory_use.h"
#include "strategies/synchronous/step_choices.h"
#include "strategies/synchronous/vendor_sums.h"

namespace lockstep::strategies {

struct SynchronousOptions {
  StepChoices step = {};
  // Devices of this process's replicas; at least one.
  std::vector<engine::Device*> devices = {};
  // Links between this machine's GPUs; predictions use them if replicas are on several GPUs.
  engine::GpuTopology gpus = {};
  int threads = 1;  // library threads per replica
  // Binds replicas to disjoint processors if there are enough.
  bool bind = true;
  std::optional<bool> communication_thread = {};  // default: communication_threads.h decides
  // Deadline of every wait for another replica; default: 60 s or 20 median steps, whichever is
  // longer.
  std::optional<std::chrono::milliseconds> deadline = {};
  collectives::Network network = {};  // between hosts
  // If algorithms and the update's place are left open, the planner uses measured costs between the
  // ranks (calibration.h). They are measured once per strategy, unless `cost_cache` has them. On
  // one host only all-reduces are timed, so that the start stays short. False: assumed costs.
  bool measured = false;
  std::filesystem::path cost_cache = {};  // folder of measured costs; empty: none
  std::size_t most_touched = 0;           // bytes during the measurement (calibration.h)
  // Relative shares of the batch by rank, the same in all processes; empty: equal.
  std::vector<std::uint64_t> shares = {};
  bool checksums = true;  // compares mirrors during training
  // Maximum bytes of this process; 0: the available memory.
  std::size_t memory_limit = 0;
  engine::Profiler* profiler = nullptr;  // attached profiler; outlives the strategy
  engine::Log log = engine::Log();
  VendorLibrary vendor = {};            // for GPUs of several processes
  std::function<void()> hook = {};      // tests: called between blocks, e.g. to delay
  std::optional<MemoryRoom> room = {};  // tests: replaces the system's report
};

}  // namespace lockstep::strategies
