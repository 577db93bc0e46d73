// SPDX-License-Identifier: MIT
// Network interfaces of this host, for display. Thread-safe; reads some files of the kernel.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::collectives::tcp {

struct Interface {
  std::string name = {};                    // "eth0"
  bool up = false;                          // operational, or with a carrier
  std::vector<std::string> addresses = {};  // numeric
  std::optional<double> speed = {};         // bit/s; unknown for virtual ones
  std::optional<int> numa_node = {};        // that it is attached to
  bool operator==(const Interface&) const = default;
};

// Returns the interfaces by name, without loopback.
std::vector<Interface> interfaces();
// Returns the interface of a folder of the kernel, without its addresses.
Interface interface_in(const std::filesystem::path& folder);
// Returns "eth0: up, 25 Gbit/s, NUMA node 1, 10.0.0.1".
std::string describe(const Interface& interface);

// Returns one line per port of the cards that are also reached without the kernel (InfiniBand,
// RoCE): "mlx5_0, port 1: 200 Gb/sec (4X HDR)". `folder`: the kernel's.
std::vector<std::string> fabric_ports(
    const std::filesystem::path& folder = "/sys/class/infiniband");

}  // namespace lockstep::collectives::tcp
