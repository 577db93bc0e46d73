// SPDX-License-Identifier: MIT
// Times the all-reduce of a training step for ranks of this process, on devices that queue their
// work or on several devices (flat_replicas.h). NCCL's all-reduce and a copy within the first
// device's memory are timed interleaved with it.
//
// The roofline of N bytes is the larger of two times. A device reads and writes 2 N bytes for each
// of its ranks, at the rate of the copy. Each of G devices receives 2 (G - 1) / G of N from the
// others, at the rate of its links. The second time counts only if costs of links are known.
//
// One thread owns it; each rank has a thread of its own inside. The objects that the setting names
// outlive it.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "collectives/topology/link_costs.h"
#include "engine/device/device.h"
#include "tools/bench/ceilings.h"
#include "tools/bench/measure.h"
#include "tools/bench/nccl_ranks.h"

namespace lockstep::tools::bench {

struct DeviceSetting {
  std::vector<engine::Device*> devices = {};    // one entry per rank: 2 to kMostReplicas
  collectives::HostCosts costs = {};            // between these ranks
  const NcclRanks* nccl = nullptr;              // same ranks; null: not timed
  std::chrono::milliseconds deadline{60000};    // per wait for another rank
  std::size_t copied = std::size_t(256) << 20;  // bytes of the copy
  double batch_seconds = 0.02;                  // approximate time of a batch
};

class DeviceRanks {
 public:
  // Throws Error(kInvalid) if a device has no kernels for the dtype, and Error(kMemory).
  DeviceRanks(const Setting& setting, const DeviceSetting& of_devices);

  // Returns the times. Compares sums with the exact ones before and after timing (Check::kAll), or
  // only after it (kLast). Throws Error(kMemory) if the buffers do not fit.
  Measured measure(const std::string& algorithm, std::size_t count);

 private:
  double roofline(double bytes, double copy_rate) const;  // seconds

  Setting setting_;
  DeviceSetting of_devices_;
  std::unique_ptr<engine::Ops> ops_;
  std::unique_ptr<CopyCeiling> copy_;
};

// Returns the bytes per second that every device can receive from the others. Returns 0 if all
// ranks share one device or no link cost is known.
double received_rate(const std::vector<engine::Device*>& devices,
                     const collectives::HostCosts& costs);

}  // namespace lockstep::tools::bench
