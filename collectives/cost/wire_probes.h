// SPDX-License-Identifier: MIT
// Wire probes: chooses the probes between hosts and their repetitions, as many as a time limit
// allows, however slow the wire is. The caller has the samples of all ranks, so all processes
// choose alike without communication. Pure and thread-safe.
//
// First come kTurn and one message, which tell the time of a barrier and of a message. Then come
// messages, as often as their share of the time allows. Then come bytes, once each. The next size
// is four times as large, if the last one predicts that it ends in time. At last the sizes of bytes
// are repeated as often as the rest allows. So an unknown wire carries little at first, and a probe
// that takes longer than its share runs once.
#pragma once
#include <optional>
#include <vector>

#include "collectives/cost/calibration.h"
#include "collectives/cost/probes.h"

namespace lockstep::collectives {

class WireProbes {
 public:
  // Plans probes that take `seconds` in all. `host`: one entry per rank, with at least two hosts.
  WireProbes(std::vector<int> host, double seconds);
  // Returns the next probes, or nothing if enough is measured. `samples`: the measurements so far,
  // with all repetitions of a probe in one sample (`add_samples`). The probes' repetitions are the
  // missing ones.
  std::optional<ProbeGroup> next(const std::vector<Sample>& samples) const;
  // Returns a group that needs as much memory as all of them.
  ProbeGroup largest() const;

 private:
  struct Seen;
  Seen seen(const std::vector<Sample>& samples) const;
  std::optional<ProbeGroup> grown(const Seen& seen) const;
  ProbeGroup again(const Seen& seen) const;
  std::vector<int> host_;
  std::vector<int> all_;  // ranks
  double seconds_;
};

}  // namespace lockstep::collectives
