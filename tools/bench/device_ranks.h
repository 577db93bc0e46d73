// SPDX-License-Identifier: MIT
// Ranks of this process on devices that queue their work, or on several devices: times the
// all-reduce that a training step of such replicas makes (flat_replicas.h), beside NCCL's and
// beside a copy within the first device's memory, in turn.
//
// The roofline of N bytes is the larger of two times. A device reads and writes 2 N bytes for each
// of its ranks, at the rate of the copy. Between G devices each receives 2 (G - 1) / G of N, at the
// rate of its links; this part counts where costs of links are known.
//
// One thread owns it; each rank has a thread of its own inside. What the setting names outlives it.
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
  std::vector<engine::Device*> devices = {};    // one entry a rank: 2 to kMostReplicas
  collectives::HostCosts costs = {};            // of these ranks
  const NcclRanks* nccl = nullptr;              // of these ranks; null: not timed
  std::chrono::milliseconds deadline{60000};    // of every wait for another rank
  std::size_t copied = std::size_t(256) << 20;  // bytes of the copy
  double batch_seconds = 0.02;                  // about, of calls between two waits
};

class DeviceRanks {
 public:
  // Throws Error(kInvalid) for a type that a device has no kernels for, and Error(kMemory).
  DeviceRanks(const Setting& setting, const DeviceSetting& of_devices);

  // Sums are compared with the exact ones before and after they are timed (Check::kAll), or after
  // (kLast). Throws Error(kMemory) where buffers do not fit.
  Measured measure(const std::string& algorithm, std::size_t count);

 private:
  double roofline(double bytes, double copy_rate) const;  // seconds

  Setting setting_;
  DeviceSetting of_devices_;
  std::unique_ptr<engine::Ops> ops_;
  std::unique_ptr<CopyCeiling> copy_;
};

// Bytes a second that each device receives from all others at most; 0 where all ranks are on one
// device or no cost of a link is known.
double received_rate(const std::vector<engine::Device*>& devices,
                     const collectives::HostCosts& costs);

}  // namespace lockstep::tools::bench
