// SPDX-License-Identifier: MIT
// How the GPUs of a host are linked, as the driver and its libraries tell: a plain value, for
// people and for prices. Any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::engine {

// The best way between two GPUs.
enum class GpuLink : std::uint8_t {
  kUnknown,
  kSame,         // one GPU, or parts of one
  kNvlink,       // directly
  kNvswitch,     // through switches that all their links go to
  kPcieSwitch,   // switches below one host bridge
  kHostBridge,   // bridges of one processor
  kAcrossNodes,  // from one NUMA node to another
};

struct GpuTopology {
  struct Gpu {
    int index = 0;            // of "cuda:1": 1
    std::string bus_id = {};  // "0000:3b:00.0"
    std::optional<int> numa_node = {};
    double memory_bandwidth = 0;  // bytes/s, of its specification; 0: not known
    bool operator==(const Gpu&) const = default;
  };
  struct Pair {
    std::size_t a = 0, b = 0;  // in `gpus`, a < b
    GpuLink link = GpuLink::kUnknown;
    int links = 0;       // of NVLink, of each of the two where a switch is between
    int generation = 0;  // of NVLink; 0: none, or not known
    bool reach = false;  // whether kernels of each read and write memory of the other
    int rank = 0;        // the driver's: 0 is the fastest kind of way on this host
    bool operator==(const Pair&) const = default;
  };
  std::vector<Gpu> gpus = {};
  std::vector<Pair> pairs = {};  // each pair once
  std::string note = {};         // one line about what could not be asked; empty where all could
  bool operator==(const GpuTopology&) const = default;
};

// "NVLink 3, 4 links", "NVSwitch, 18 links of NVLink 4", "PCI Express through switches".
std::string describe(const GpuTopology::Pair& pair);

// For people, a line for each kind of way with its pairs, and one about NUMA nodes. None where
// there are not several GPUs.
std::vector<std::string> describe(const GpuTopology& topology);

}  // namespace lockstep::engine
