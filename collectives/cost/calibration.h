// SPDX-License-Identifier: MIT
// Calibration: turns the times of probes (probes.h) into the costs with which the simulator
// predicts these times. It is a pure function of the times. Thread-safe; takes some milliseconds.
#pragma once
#include <vector>

#include "collectives/cost/probes.h"
#include "collectives/topology/topology.h"

namespace lockstep::collectives {

// Holds the times of a probe.
struct Sample {
  Probe probe;
  std::vector<std::vector<double>> seconds;  // [repetition][rank]
};

// Adds `more` to the samples. Repetitions of a known probe are appended to its sample.
void add_samples(std::vector<Sample>& samples, std::vector<Sample> more);

// Cuts the repetitions into `parts` parts by time (fewer if there are fewer repetitions) and
// returns the median of each part. A repetition takes as long as the slowest of `ranks`.
inline constexpr int kParts = 3;
std::vector<double> part_medians(const Sample& sample, const std::vector<int>& ranks,
                                 int parts = kParts);

// Returns the time that represents all repetitions. It is a median, since predictions are for a
// usual call and not for the fastest. Within a host, and for many bytes between hosts, it is the
// least of the part medians: other load comes in bursts, which do not hit all parts. For few bytes
// between hosts it is the median of all repetitions. There a rank may be asleep when a message
// comes, and a part in which no rank slept is not usual. For all-reduces (kSum), which are compared
// with each other, it is the median of the part medians.
double usual_seconds(const Sample& sample, const std::vector<int>& ranks);

// Returns whether in-place sums of `ranks`, which share a host, are clearly faster if they prefetch
// lines for reading. Later measurements use this setting.
bool better_read_ahead(const std::vector<Sample>& samples, const std::vector<int>& ranks);

// Returns `topology` with measured costs: of each host by its own ranks, of the wire by all hosts.
// `processors`: for each host, those that its ranks share. If samples are missing, their costs do
// not change. All costs are finite; bandwidths are positive.
Topology calibrated(Topology topology, const std::vector<Sample>& samples,
                    const std::vector<int>& processors);

}  // namespace lockstep::collectives
