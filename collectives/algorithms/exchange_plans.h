// SPDX-License-Identifier: MIT
// Plans made of exchanges: among all ranks, or among leaders. Ranges go in segments, of which
// several are in flight, each in a lane of its own. Pure.
#pragma once
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "collectives/algorithms/exchange.h"

namespace lockstep::collectives {

// Nearly equal parts of a slice, cut at engine::kBlock.
struct Segments {
  Range slice;
  int count = 1;
  int lanes = 1;  // segment i is in lane i % lanes, behind segment i - lanes
  Range operator[](int index) const { return collectives::slice(slice, index, count); }
};
// So many that a `parts`-th of a segment is a message of about request.chunk_bytes, and two at
// least where that leaves messages worth sending. One where nothing is sent (one part).
Segments segments(const Request& request, Range slice, int parts);

// Every rank a party of its own.
Plan among_all(const Request& request, std::string algorithm, const Exchange& exchange);
std::size_t among_all_scratch(const Request& request, const Exchange& exchange);

// Makes the exchange of a slice's leaders.
using MakeExchange =
    std::function<std::unique_ptr<Exchange>(std::vector<Party> leaders, Range slice)>;
// The leaders stand in a circle (circle.h). The request outlives what this gives.
MakeExchange circle_of_leaders(const Request& request);
inline constexpr int kEveryRank = std::numeric_limits<int>::max();  // as `most`, below

// The subject is cut into slices, and each slice has one leader on each host, who acts there for
// all ranks of its host: as many slices as the smallest host has ranks, at most `most`. With
// request.rotation the slices go round the ranks of a host, also where it has more than there are
// slices. The leaders of a slice are the parties of an exchange, in the order of the hosts'
// numbers. Ranks of a host meet once before and once after all exchanges. On one host there is
// nothing to exchange, and the plan is that of direct, in which no leader does the work of all.
Plan among_leaders(const Request& request, std::string algorithm, int most,
                   const MakeExchange& make);
std::size_t among_leaders_scratch(const Request& request, int most, const MakeExchange& make);

}  // namespace lockstep::collectives
