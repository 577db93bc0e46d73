// SPDX-License-Identifier: MIT
// What a machine was measured to be, or is said to be: the numbers with which the simulator prices
// plans. Plain values in seconds and bytes a second; part of a Topology, and of its JSON. The
// defaults are a server of the middle, and good for comparing algorithms, not for predicting times:
// a reduction in cache at 40 GB/s a core, from memory at 12, four cores to fill the memory's bus;
// between hosts TCP over 10 Gbit/s Ethernet. Any thread.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep::collectives {

// How ranks of one host reach each other's memory.
enum class LinkClass : std::uint8_t {
  kMemory,  // processors on one memory, which they share
  kNvlink,  // devices with memory of their own, and links
  kPcie,    // likewise, over PCI Express
};
std::string_view name(LinkClass link);

// What a reduction reads and writes a second where the ranks of its host touch `bytes` in all.
struct MemoryPass {
  double bytes = 0;  // ranks of the host x bytes of the collective
  double core = 0;   // bytes/s, read and written together, by one rank alone
  double host = 0;   // by all ranks of the host at once; of devices: by each, in its own memory
  // Bytes of other ranks that one rank reads a second where it stores into its own memory alone: a
  // core that waits for lines of others, and does not take them over. 0: no slower than `core`.
  double fetch = 0;
  bool operator==(const MemoryPass&) const = default;
};

// A direct link between two devices of a host, which are counted from 0 there.
struct PeerLink {
  int a = 0, b = 0;
  double bandwidth = 0;  // bytes/s in each direction
  bool operator==(const PeerLink&) const = default;
};

struct HostCosts {
  LinkClass link = LinkClass::kMemory;
  int cores = 0;           // of all ranks of the host together; 0: as many as its process with most
  double signal = 0.5e-6;  // s: from one rank's arrive to the end of another's await
  double step = 0.05e-6;   // s: of the executor, for any step
  double block = 0.05e-6;  // s: of a reduction, for each block, beside the bytes
  double reduction = 0;    // s: of a reduction at all, beside blocks and bytes
  double call = 0;         // s: of a collective at all: from start to first step, from last to end
  // Ascending by bytes, at least one; see `pass`.
  std::vector<MemoryPass> passes = {{4e6, 40e9, 160e9}, {64e6, 12e9, 48e9}};
  // From how many bytes on results are better written past the caches (memory_access.h): where all
  // ranks of the host touch so many, and where one step stores so many. 0: not measured. No price
  // depends on them.
  double stream_touched = 0, stream_results = 0;
  // Whether sums in place are faster where they ask for lines of sources ahead, to be read, than
  // for lines of targets, to be written. Prices were measured with what it says.
  bool read_ahead = false;
  // Devices: bytes/s that one sends to, and takes from, those without a direct link to it.
  double port = 0;
  std::vector<PeerLink> links = {};

  // The sweep at so many bytes: between two points the time of a byte goes in a straight line,
  // before the first and behind the last it stays.
  MemoryPass pass(double bytes) const;
  // Bytes/s of the direct link between any two of so many devices, [from * devices + to]; 0: none.
  std::vector<double> direct(int devices) const;
  bool operator==(const HostCosts&) const = default;
};

// Between any two hosts. Each host has one way out and one way in, which its messages share.
struct WireCosts {
  double latency = 25e-6;      // s: from the last byte sent to the last byte there
  double bandwidth = 1.17e9;   // bytes/s of payload in each direction
  double processor = 0.25e-9;  // s a byte, of the sending rank and of the receiving one
  double message = 3e-6;       // s a message, of each of the two
  // Bytes that a host's way takes at once after a pause in which the wire could have carried them:
  // of links that somebody limits, and of queues on the way.
  double burst = 0;
  double call = 0;  // s: of a collective between hosts, beside `call` of the host
  bool operator==(const WireCosts&) const = default;
};

}  // namespace lockstep::collectives
