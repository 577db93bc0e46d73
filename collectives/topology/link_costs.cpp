// SPDX-License-Identifier: MIT
#include "collectives/topology/link_costs.h"

#include <array>

namespace lockstep::collectives {

std::string_view name(LinkClass link) {
  static constexpr std::array<std::string_view, 3> kNames{"memory", "nvlink", "pcie"};
  return kNames[std::size_t(link)];
}

MemoryPass HostCosts::pass(double bytes) const {
  std::size_t next = 0;
  while (next < passes.size() && passes[next].bytes < bytes) ++next;
  if (next == 0 || next == passes.size()) {
    MemoryPass end = next == 0 ? passes.front() : passes.back();
    end.bytes = bytes;
    return end;
  }
  const MemoryPass &low = passes[next - 1], &high = passes[next];
  const double part = (bytes - low.bytes) / (high.bytes - low.bytes);
  const auto between = [&](double a, double b) { return 1 / ((1 - part) / a + part / b); };
  const bool fetch = low.fetch > 0 && high.fetch > 0;
  return {bytes, between(low.core, high.core), between(low.host, high.host),
          fetch ? between(low.fetch, high.fetch) : 0};
}

std::vector<double> HostCosts::direct(int devices) const {
  const auto n = std::size_t(devices);
  std::vector<double> between(n * n);
  for (const PeerLink& one : links) {
    if (one.a >= devices || one.b >= devices) continue;
    between[std::size_t(one.a) * n + std::size_t(one.b)] = one.bandwidth;
    between[std::size_t(one.b) * n + std::size_t(one.a)] = one.bandwidth;
  }
  return between;
}

}  // namespace lockstep::collectives
