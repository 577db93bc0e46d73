// SPDX-License-Identifier: MIT
#include "collectives/tcp/nearest.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <span>

namespace lockstep::collectives::tcp {
namespace {

using AddressBytes = std::span<const unsigned char>;

// Returns 4 or 16 bytes, or none for another family.
AddressBytes address_bytes(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* four = reinterpret_cast<const sockaddr_in*>(address);
    return {reinterpret_cast<const unsigned char*>(&four->sin_addr), 4};
  }
  if (address->sa_family == AF_INET6) {
    const auto* six = reinterpret_cast<const sockaddr_in6*>(address);
    return {six->sin6_addr.s6_addr, 16};
  }
  return {};
}

int common_bits(AddressBytes a, AddressBytes b) {
  int bits = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const int equal = std::countl_zero(static_cast<unsigned char>(a[i] ^ b[i]));
    bits += equal;
    if (equal < 8) break;
  }
  return bits;
}

// Returns 0 in a network of this host, 1 elsewhere, and 2 for this host itself.
int distance(const Endpoint& endpoint, const std::vector<OwnAddress>& own) {
  const AddressBytes there = address_bytes(reinterpret_cast<const sockaddr*>(&endpoint.address));
  int least = 1;
  for (const OwnAddress& here : own) {
    unsigned char mine[16];
    const bool four = here.address.find(':') == std::string::npos;
    if (there.size() != (four ? 4u : 16u)) continue;
    if (inet_pton(four ? AF_INET : AF_INET6, here.address.c_str(), mine) != 1) continue;
    const int equal = common_bits(there, {mine, there.size()});
    if (equal == int(there.size()) * 8) return 2;
    if (equal >= here.bits) least = 0;
  }
  return least;
}

}  // namespace

std::vector<OwnAddress> own_addresses() {
  ifaddrs* list = nullptr;
  std::vector<OwnAddress> own;
  if (getifaddrs(&list) != 0) return own;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_netmask == nullptr || (i->ifa_flags & IFF_UP) == 0)
      continue;
    const AddressBytes address = address_bytes(i->ifa_addr);
    if (address.empty()) continue;
    char text[INET6_ADDRSTRLEN] = {};
    inet_ntop(i->ifa_addr->sa_family, address.data(), text, sizeof text);
    int bits = 0;
    for (const unsigned char byte : address_bytes(i->ifa_netmask)) bits += std::popcount(byte);
    own.push_back({text, bits});
  }
  return own;
}

std::vector<Endpoint> nearest_first(std::vector<Endpoint> endpoints,
                                    const std::vector<OwnAddress>& own) {
  std::stable_sort(endpoints.begin(), endpoints.end(), [&](const Endpoint& a, const Endpoint& b) {
    return distance(a, own) < distance(b, own);
  });
  return endpoints;
}

}  // namespace lockstep::collectives::tcp
