// SPDX-License-Identifier: MIT
// The links between the GPUs of a host, as the driver and its libraries report them. A plain value,
// for people and for predicted times. Thread-safe.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::engine {

// Names the best path between two GPUs.
enum class GpuLink : std::uint8_t {
  kUnknown,
  kSame,         // one GPU, or parts of one
  kNvlink,       // direct links
  kNvswitch,     // all links go to switches
  kPcieSwitch,   // switches below one host bridge
  kHostBridge,   // bridges of one processor
  kAcrossNodes,  // from one NUMA node to another
};

struct GpuTopology {
  struct Gpu {
    int index = 0;            // 1 for "cuda:1"
    std::string bus_id = {};  // "0000:3b:00.0"
    std::optional<int> numa_node = {};
    double memory_bandwidth = 0;  // bytes/s by specification; 0: unknown
    bool operator==(const Gpu&) const = default;
  };
  struct Pair {
    std::size_t a = 0, b = 0;  // in `gpus`, a < b
    GpuLink link = GpuLink::kUnknown;
    int links = 0;       // NVLinks; per GPU if a switch is between
    int generation = 0;  // NVLink generation; 0: none or unknown
    bool reach = false;  // kernels of each access the other's memory
    int rank = 0;        // the driver's; 0: fastest on this host
    bool operator==(const Pair&) const = default;
  };
  std::vector<Gpu> gpus = {};
  std::vector<Pair> pairs = {};  // each pair once
  std::string note = {};         // one line about failed queries, or empty
  bool operator==(const GpuTopology&) const = default;
};

// Returns "NVLink 3, 4 links", "NVSwitch, 18 links of NVLink 4" or "PCI Express through switches".
std::string describe(const GpuTopology::Pair& pair);

// Returns lines for people: one per kind of path with its pairs, one about NUMA nodes, and the
// note. None for fewer than two GPUs.
std::vector<std::string> describe(const GpuTopology& topology);

}  // namespace lockstep::engine
