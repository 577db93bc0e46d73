// SPDX-License-Identifier: MIT
#include "collectives/topology/ring_order.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <numeric>

namespace lockstep::collectives {
namespace {

constexpr int kSearched = 16;

using Set = std::uint32_t;  // devices of a host as bits

Set set_of(int device) {
  return Set(1) << device;
}

// Returns the first path by number through all devices along `neighbours` (a set per device), or an
// empty list if there is none. A closed path begins with device 0 and leads back to it.
//
// Computes for each set of devices, smaller ones first, the devices with which a path through the
// set can begin. Such a device has a neighbor that begins a path through the others.
std::vector<int> first_way(const std::vector<Set>& neighbours, bool closed) {
  const int n = int(neighbours.size());
  const Set all = set_of(n) - 1;
  std::vector<Set> begins(std::size_t(all) + 1);
  for (int device = 0; device < n; ++device)
    if (!closed || (neighbours[std::size_t(device)] & set_of(0)) != 0)
      begins[set_of(device)] = set_of(device);
  for (Set set = 1; set <= all; ++set)
    for (Set left = set; std::popcount(set) > 1 && left != 0; left &= left - 1) {
      const int device = std::countr_zero(left);
      if ((neighbours[std::size_t(device)] & begins[set & ~set_of(device)]) != 0)
        begins[set] |= set_of(device);
    }
  std::vector<int> way;
  Set next = closed ? begins[all] & set_of(0) : begins[all];
  for (Set left = all; next != 0; next = neighbours[std::size_t(way.back())] & begins[left]) {
    way.push_back(std::countr_zero(next));
    left &= ~set_of(way.back());
  }
  return way;
}

// Holds the bandwidths between the devices of a host, as [from * n + to].
class Strengths {
 public:
  Strengths(const HostCosts& costs, int n) : n_(n), between_(costs.direct(n)) {
    for (double& bandwidth : between_)
      if (bandwidth == 0) bandwidth = costs.port;
  }
  double operator()(int a, int b) const { return between_[std::size_t(a * n_ + b)]; }
  // Returns the distinct values, largest first.
  std::vector<double> values() const {
    std::vector<double> values;
    for (int a = 0; a < n_; ++a)
      for (int b = a + 1; b < n_; ++b) values.push_back((*this)(a, b));
    std::sort(values.begin(), values.end(), std::greater<>());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    return values;
  }
  std::vector<int> way(double weakest, bool closed) const {
    std::vector<Set> neighbours(std::size_t(n_), 0);
    for (int a = 0; a < n_; ++a)
      for (int b = 0; b < n_; ++b)
        if (a != b && (*this)(a, b) >= weakest) neighbours[std::size_t(a)] |= set_of(b);
    return first_way(neighbours, closed);
  }
  // Returns a path from device 0 that always takes the strongest link to a remaining device.
  std::vector<int> greedy() const {
    std::vector<int> left(static_cast<std::size_t>(n_ - 1)), way{0};
    std::iota(left.begin(), left.end(), 1);
    while (!left.empty()) {
      const auto next = std::max_element(left.begin(), left.end(), [&](int a, int b) {
        return (*this)(way.back(), a) < (*this)(way.back(), b);
      });
      way.push_back(*next);
      left.erase(next);
    }
    return way;
  }

 private:
  int n_;
  std::vector<double> between_;
};

// Returns the order of a host's ranks, by their index on the host. `closed`: it is the only host.
std::vector<int> order_in_host(const HostCosts& costs, int n, bool closed) {
  std::vector<int> numbers(static_cast<std::size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  if (costs.link == LinkClass::kMemory || costs.links.empty() || n < 3) return numbers;
  const Strengths strengths(costs, n);
  const std::vector<double> values = strengths.values();
  if (values.size() == 1) return numbers;
  if (n > kSearched) return strengths.greedy();
  // If all links may be used, the weakest too, there is a path.
  const auto weakest = std::partition_point(
      values.begin(), values.end() - 1,
      [&](double bandwidth) { return strengths.way(bandwidth, closed).empty(); });
  return strengths.way(*weakest, closed);
}

}  // namespace

std::vector<int> ring_order(const Topology& topology) {
  std::vector<std::vector<int>> ranks(topology.hosts.size());
  for (std::size_t rank = 0; rank < topology.ranks.size(); ++rank)
    ranks[std::size_t(topology.ranks[rank].host)].push_back(int(rank));
  const bool closed = topology.hosts.size() == 1;
  std::vector<int> order, way;
  for (std::size_t host = 0; host < ranks.size(); ++host) {
    const HostCosts& costs = topology.hosts[host].costs;
    const bool alike = host > 0 && ranks[host].size() == ranks[host - 1].size() &&
                       costs == topology.hosts[host - 1].costs;
    if (!alike) way = order_in_host(costs, int(ranks[host].size()), closed);
    for (const int place : way) order.push_back(ranks[host][std::size_t(place)]);
  }
  return order;
}

}  // namespace lockstep::collectives
