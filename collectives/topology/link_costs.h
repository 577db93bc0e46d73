// SPDX-License-Identifier: MIT
// Measured or described costs of a machine, from which the simulator predicts the times of plans.
// They are plain values in seconds and bytes per second, part of a Topology and of its JSON. The
// defaults describe a mid-range server. They are good for comparing algorithms, not for predicting
// times. A core reduces at 40 GB/s in cache and at 12 GB/s from memory; four cores saturate the
// memory bus. Between hosts there is TCP over 10 Gbit/s Ethernet. Thread-safe.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep::collectives {

// Tells how ranks of one host access each other's memory.
enum class LinkClass : std::uint8_t {
  kMemory,  // processors with shared memory
  kNvlink,  // devices with their own memory, and links
  kPcie,    // likewise, over PCI Express
};
std::string_view name(LinkClass link);

// Gives the bandwidths of a reduction if the ranks of its host touch `bytes` in all.
struct MemoryPass {
  double bytes = 0;  // ranks of the host x collective bytes
  double core = 0;   // bytes/s, read and written, of one rank alone
  // Bytes/s of all ranks of the host at once; for devices, of each in its own memory.
  double host = 0;
  // Bytes/s that one rank reads from others if it stores only into its own memory. A core then
  // waits for cache lines of others but does not take them over. 0: no slower than `core`.
  double fetch = 0;
  bool operator==(const MemoryPass&) const = default;
};

// Describes a direct link between two devices of a host, which are numbered from 0.
struct PeerLink {
  int a = 0, b = 0;
  double bandwidth = 0;  // bytes/s in each direction
  bool operator==(const PeerLink&) const = default;
};

struct HostCosts {
  LinkClass link = LinkClass::kMemory;
  // Cores that all ranks of the host share. 0: as many as the process with the most has.
  int cores = 0;
  double signal = 0.5e-6;  // s from an arrive to another rank's await
  double step = 0.05e-6;   // s per step of the executor
  double block = 0.05e-6;  // s per block of a reduction, besides bytes
  double reduction = 0;    // s per reduction, besides blocks and bytes
  double call = 0;         // s per collective, before and after its steps
  // Passes in ascending order of bytes, at least one; see `pass`.
  std::vector<MemoryPass> passes = {{4e6, 40e9, 160e9}, {64e6, 12e9, 48e9}};
  // Bytes from which non-temporal stores are faster (memory_access.h): bytes that all ranks of the
  // host touch, and bytes that one step stores. 0: not measured. Predicted times do not depend on
  // them.
  double stream_touched = 0, stream_results = 0;
  // If true, in-place sums are faster if they prefetch source lines for reading than target lines
  // for writing. The costs were measured with this setting.
  bool read_ahead = false;
  // Devices: bytes/s that a device sends to, and receives from, devices without a direct link to
  // it.
  double port = 0;
  std::vector<PeerLink> links = {};

  // Returns the bandwidths at `bytes`. Between two passes the time per byte is interpolated
  // linearly; before the first and after the last it is constant.
  MemoryPass pass(double bytes) const;
  // Returns the bytes/s of the direct links between `devices` devices, as [from * devices + to]; 0:
  // none.
  std::vector<double> direct(int devices) const;
  bool operator==(const HostCosts&) const = default;
};

// Describes the network between any two hosts. Each host has one outgoing and one incoming link,
// which its messages share.
struct WireCosts {
  double latency = 25e-6;      // s; last byte sent to last byte received
  double bandwidth = 1.17e9;   // bytes/s of payload in each direction
  double processor = 0.25e-9;  // s per byte, on sender and receiver each
  double message = 3e-6;       // s per message, on sender and receiver each
  // Bytes that a host's link takes at once after a pause in which the wire could have carried them.
  // Links with a rate limit, and queues on the way, have such bursts.
  double burst = 0;
  double call = 0;  // s per collective between hosts, besides HostCosts::call
  bool operator==(const WireCosts&) const = default;
};

}  // namespace lockstep::collectives
