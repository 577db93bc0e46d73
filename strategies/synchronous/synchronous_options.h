// SPDX-License-Identifier: MIT
// The options of a synchronous strategy, on one process. Plain values; the devices and the profiler
// outlive the strategy.
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
  std::vector<engine::Device*> devices = {};  // one entry a replica of this process; at least one
  // How GPUs of this machine are linked: where replicas are on several, plans are priced by it.
  engine::GpuTopology gpus = {};
  int threads = 1;   // library threads of a replica
  bool bind = true;  // replicas to processors of their own, where that fits
  std::optional<bool> communication_thread = {};  // else communication_threads.h decides
  // Of every wait for another replica; without it 60 s or 20 median steps, whichever is longer.
  std::optional<std::chrono::milliseconds> deadline = {};
  collectives::Network network = {};  // between hosts
  // For algorithms and places of the update that are not asked for, the planner chooses by what the
  // ranks were measured to cost each other (calibration.h), once a strategy, unless `cost_cache`
  // has it: on one host sums alone are timed, so that the start stays short. Else by assumed costs.
  bool measured = false;
  std::filesystem::path cost_cache = {};  // folder of measured costs; empty: none are kept
  std::size_t most_touched = 0;           // bytes, while they are measured (calibration.h)
  // Of the batch, by rank, the same in all processes; empty: equal.
  std::vector<std::uint64_t> shares = {};
  bool checksums = true;                 // confirm that mirrors are equal while training
  std::size_t memory_limit = 0;          // bytes of this process in all; 0: what there is
  engine::Profiler* profiler = nullptr;  // that looks at this process; outlives the strategy
  engine::Log log = engine::Log();
  VendorLibrary vendor = {};            // for GPUs of several processes
  std::function<void()> hook = {};      // tests: called between blocks, e.g. to delay
  std::optional<MemoryRoom> room = {};  // tests: instead of what the system says
};

}  // namespace lockstep::strategies
