// SPDX-License-Identifier: MIT
// Which probes are run between hosts, and how often: as many as a time allows, however slow the
// wire is. Who asks has the samples of all ranks, so all processes ask for the same without a word.
// Pure; any thread.
//
// First a turn and one message, which tell what a meeting and a way cost; then messages, as often
// as their share of the time allows; then bytes, once each: four times as many as before, while the
// last ones say that these will end in time. At last those again, as often as the rest allows. So
// a wire that nobody has measured yet is asked for little first, and what takes longer than its
// share is done once.
#pragma once
#include <optional>
#include <vector>

#include "collectives/cost/calibration.h"
#include "collectives/cost/probes.h"

namespace lockstep::collectives {

class WireProbes {
 public:
  // `host`: of each rank, of at least two hosts; `seconds`: that all should take.
  WireProbes(std::vector<int> host, double seconds);
  // What comes next, given what was measured so far, of each probe all repetitions in one sample
  // (`add_samples`); empty: enough is measured. The probes' repetitions are those that are missing.
  std::optional<ProbeGroup> next(const std::vector<Sample>& samples) const;
  // The memory that all of them need.
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
