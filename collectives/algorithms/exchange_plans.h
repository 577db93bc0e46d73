// SPDX-License-Identifier: MIT
// Plans made of exchanges, among all ranks or among leaders. Ranges are cut into segments. Several
// segments are in flight, each in its own lane. All functions are pure.
#pragma once
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "collectives/algorithms/exchange.h"

namespace lockstep::collectives {

// Nearly equal parts of a slice, cut at engine::kBlock. Segment i follows segment i - lanes.
struct Segments {
  Range slice;
  int count = 1;
  int lanes = 1;  // segment i is in lane i % lanes
  Range operator[](int index) const { return collectives::slice(slice, index, count); }
};
// Chooses the number of segments so that a `parts`-th of one is a message of about
// request.chunk_bytes. There are at least two if their messages are still worth sending, and one if
// nothing is sent (one part).
Segments segments(const Request& request, Range slice, int parts);

// Makes a plan in which every rank is a party of its own.
Plan among_all(const Request& request, std::string algorithm, const Exchange& exchange);
std::size_t among_all_scratch(const Request& request, const Exchange& exchange);

// Function that makes the exchange of a slice's leaders.
using MakeExchange =
    std::function<std::unique_ptr<Exchange>(std::vector<Party> leaders, Range slice)>;
// Returns a function that arranges the leaders in a circle (circle.h). `request` must outlive it.
MakeExchange circle_of_leaders(const Request& request);
inline constexpr int kEveryRank = std::numeric_limits<int>::max();  // value for `most` below

// Makes a plan in which each slice of the subject has one leader per host. A leader acts for all
// ranks of its host. There are as many slices as the smallest host has ranks, but at most `most`.
// request.rotation rotates the slices over the ranks of a host, even if there are fewer slices than
// ranks. The leaders of a slice are the parties of an exchange, in the order of the host numbers.
// Ranks of a host synchronize once before and once after all exchanges. On one host there is
// nothing to exchange: the plan is that of direct, in which all ranks share the work.
Plan among_leaders(const Request& request, std::string algorithm, int most,
                   const MakeExchange& make);
std::size_t among_leaders_scratch(const Request& request, int most, const MakeExchange& make);

}  // namespace lockstep::collectives
