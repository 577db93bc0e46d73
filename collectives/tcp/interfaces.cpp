// SPDX-License-Identifier: MIT
// Documentation/ABI/testing/sysfs-class-net and stable/sysfs-class-infiniband describe the kernel's
// files.
#include "collectives/tcp/interfaces.h"

#include <fmt/core.h>
#include <ifaddrs.h>
#include <netdb.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>

namespace lockstep::collectives::tcp {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::optional<long> number_in(const fs::path& file) {
  const std::string line = first_line(file);
  char* end = nullptr;
  const long number = std::strtol(line.c_str(), &end, 10);
  return end == line.c_str() ? std::nullopt : std::optional(number);
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    found.push_back(at->path());
  std::sort(found.begin(), found.end());
  return found;
}

std::map<std::string, std::vector<std::string>> addresses() {
  std::map<std::string, std::vector<std::string>> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const auto family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const std::size_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::array<char, NI_MAXHOST> text{};
    if (getnameinfo(at->ifa_addr, socklen_t(length), text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) == 0)
      found[at->ifa_name].emplace_back(text.data());
  }
  freeifaddrs(list);
  return found;
}

}  // namespace

Interface interface_in(const fs::path& folder) {
  Interface found;
  found.name = folder.filename().string();
  found.up = first_line(folder / "operstate") == "up" || number_in(folder / "carrier") == 1;
  // The speed is in Mbit/s, or -1 if it is unknown.
  const std::optional<long> speed = number_in(folder / "speed");
  if (speed && *speed > 0) found.speed = double(*speed) * 1e6;
  const std::optional<long> node = number_in(folder / "device" / "numa_node");
  if (node && *node >= 0) found.numa_node = int(*node);
  return found;
}

std::vector<Interface> interfaces() {
  const auto of = addresses();
  std::vector<Interface> found;
  for (const fs::path& folder : entries("/sys/class/net")) {
    if (folder.filename() == "lo" || !fs::is_directory(folder)) continue;
    found.push_back(interface_in(folder));
    const auto mine = of.find(found.back().name);
    if (mine != of.end()) found.back().addresses = mine->second;
  }
  return found;
}

std::string describe(const Interface& interface) {
  std::string text = interface.name + (interface.up ? ": up" : ": down");
  if (interface.speed) text += fmt::format(", {:g} Gbit/s", *interface.speed / 1e9);
  if (interface.numa_node) text += fmt::format(", NUMA node {}", *interface.numa_node);
  for (const std::string& address : interface.addresses) text += ", " + address;
  return text;
}

std::vector<std::string> fabric_ports(const fs::path& folder) {
  std::vector<std::string> lines;
  for (const fs::path& card : entries(folder))
    for (const fs::path& port : entries(card / "ports"))
      lines.push_back(fmt::format("{}, port {}: {}", card.filename().string(),
                                  port.filename().string(), first_line(port / "rate")));
  return lines;
}

}  // namespace lockstep::collectives::tcp
