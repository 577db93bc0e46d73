// SPDX-License-Identifier: MIT
// How algorithms that tell hosts from ranks divide their work: the subject is cut into slices, and
// each slice has one leader on each host, who acts there for all ranks of its host. Slices are cut
// into segments, of which a leader has several in flight, each in a lane of its own. Pure.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "collectives/algorithms/steps.h"

namespace lockstep::collectives {

// Slice s of host h has leader rank(h, s), the same rank for no other slice. With `turn` the slices
// go round the ranks of a host, also where it has more ranks than there are slices.
struct Leaders {
  std::vector<std::vector<int>> hosts;  // their ranks, ascending; hosts by their numbers
  int slices = 1;                       // at most the ranks of the smallest host
  int turn = 0;
  int rank(int host, int slice) const;
};
// As many slices as the smallest host has ranks, but no more than `most`.
Leaders leaders(const Request& request, int most);

// Nearly equal parts of a slice, cut at engine::kBlock.
struct Segments {
  Range slice;
  int count = 1;
  int lanes = 1;  // segment i is in lane i % lanes, behind segment i - lanes
  Range operator[](int index) const { return collectives::slice(slice, index, count); }
};
// So many that a `parts`-th of a segment is a message of about request.chunk_bytes, and two at
// least where that leaves messages worth sending.
Segments segments(const Request& request, Range slice, int parts);

// Writes what the leader of a slice on a host (an index of Leaders::hosts) does with one segment.
// It may read and write that segment in all ranks of the host, and the lane's scratch.
using Walk =
    std::function<void(Lane& lane, int slice, int host, Range segment, std::size_t scratch)>;

// The plan around the walks: ranks of a host arrive, leaders await them, walk, arrive, and all
// await the leaders. `parts` as above; a lane has `lane_scratch` elements of scratch.
Plan lead(const Request& request, std::string algorithm, const Leaders& leaders, int parts,
          std::size_t lane_scratch, const Walk& walk);

// Of all lanes of a rank together, where `of_segment` says what a walk needs; and of one lane.
std::size_t lane_scratch(const Request& request, const Leaders& leaders, int parts,
                         const std::function<std::size_t(Range)>& of_segment);
int most_lanes(const Request& request, const Leaders& leaders, int parts);

}  // namespace lockstep::collectives
