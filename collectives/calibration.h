// SPDX-License-Identifier: MIT
// From times to costs: what the probes of probes.h took on a machine, put into its topology as the
// costs with which the simulator says that they take just that. A pure function of the times. Any
// thread; some milliseconds.
#pragma once
#include <vector>

#include "collectives/probes.h"
#include "collectives/topology.h"

namespace lockstep::collectives {

// What a probe took.
struct Sample {
  Probe probe;
  std::vector<std::vector<double>> seconds;  // [repetition][rank]
};

// Puts `more` to the samples: of a probe that is there already its repetitions, behind those.
void add_samples(std::vector<Sample>& samples, std::vector<Sample> more);

// What one number stands for all repetitions: of each the slowest of `ranks`; of these the median,
// since predictions are of the usual call and not of the luckiest. Within a host the least median
// of three parts by time, since what else the machine does comes in bursts, and one that hits a
// part does not hit all; and so for many bytes between hosts. For few of all: there ranks may be
// asleep or not when a message comes, and the part in which nobody slept is not the usual one. Of
// sums of few bytes (kSum) likewise, which are compared with each other.
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
