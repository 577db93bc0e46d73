// SPDX-License-Identifier: MIT
// The network interfaces of this host, for people. Any thread; reads some files of the kernel.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::collectives::tcp {

struct Interface {
  std::string name = {};                    // "eth0"
  bool up = false;                          // and a cable is in it
  std::vector<std::string> addresses = {};  // numbers
  std::optional<double> speed = {};         // bit/s; virtual ones do not say
  std::optional<int> numa_node = {};        // that it hangs on
  bool operator==(const Interface&) const = default;
};

// By name, without loopback.
std::vector<Interface> interfaces();
// What the kernel's folder says of one, but for the addresses.
Interface interface_in(const std::filesystem::path& folder);
// "eth0: up, 25 Gbit/s, NUMA node 1, 10.0.0.1".
std::string describe(const Interface& interface);

// Of cards that are also reached without the kernel (InfiniBand, RoCE), a line a port: "mlx5_0,
// port 1: 200 Gb/sec (4X HDR)". `folder`: the kernel's.
std::vector<std::string> fabric_ports(
    const std::filesystem::path& folder = "/sys/class/infiniband");

}  // namespace lockstep::collectives::tcp
