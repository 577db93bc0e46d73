// SPDX-License-Identifier: MIT
// From times to costs: what the probes of probes.h took on a machine, put into its topology as the
// costs with which the simulator says that they take just that. A pure function of the times. Any
// thread; some milliseconds.
#pragma once
#include <vector>

#include "collectives/cost/probes.h"
#include "collectives/topology/topology.h"

namespace lockstep::collectives {

// What a probe took.
struct Sample {
  Probe probe;
  std::vector<std::vector<double>> seconds;  // [repetition][rank]
};

// Puts `more` to the samples: of a probe that is there already its repetitions, behind those.
void add_samples(std::vector<Sample>& samples, std::vector<Sample> more);

// Cuts the repetitions into so many parts by time (fewer where there are not so many) and returns
// the median of each. A repetition took as long as the slowest of `ranks`.
inline constexpr int kParts = 3;
std::vector<double> part_medians(const Sample& sample, const std::vector<int>& ranks,
                                 int parts = kParts);

// Returns the one number that stands for all repetitions. It is a median, since predictions are of
// the usual call and not of the luckiest. Within a host, and for many bytes between hosts, it is
// the least of the part medians: other work comes in bursts, and one that hits a part does not hit
// all. For few bytes between hosts it is the median of all, since there ranks may be asleep or not
// when a message comes, and the part in which nobody slept is not the usual one. For all-reduces
// (kSum), which are compared with each other, it is the middle one of the part medians.
double usual_seconds(const Sample& sample, const std::vector<int>& ranks);

// Whether sums in place of `ranks`, those of a host, are clearly faster where they ask ahead for
// lines to be read: what is measured after that is measured so.
bool better_read_ahead(const std::vector<Sample>& samples, const std::vector<int>& ranks);

// `topology` with measured costs: of each host by its own ranks, of the wire by all hosts.
// `processors`: of each host, that its ranks may use together. Samples may be missing: what they
// would tell stays as it was. All costs are finite; bandwidths are positive.
Topology calibrated(Topology topology, const std::vector<Sample>& samples,
                    const std::vector<int>& processors);

}  // namespace lockstep::collectives
