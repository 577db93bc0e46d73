// SPDX-License-Identifier: MIT
// Small plans whose times tell what a machine costs: the executor runs them as it runs all plans,
// with all ranks of a job at once, and the simulator says what they should take; calibration.h
// makes costs of the difference. Within a host all hosts are at work at the same time, each for
// itself; between hosts every host sends to the next one and receives from the one before. Pure
// functions; any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/plan/plan.h"

namespace lockstep::collectives {

struct Probe {
  enum class Kind {
    kRounds,      // `size` times: arrive, and await all ranks of the host
    kArrivals,    // one round, then `size` arrivals that nobody awaits
    kReductions,  // one round, then `size` reductions of a few elements
    kTogether,    // a sum of `size` bytes a rank: each rank adds its slice of all ranks into all
    kAlone,       // the same, but the first rank of the host does it all
    // Each rank adds its slice of all ranks' numbers into its own, then takes the next one's sums,
    // in place of numbers that others have read: as what stores into no other's memory does.
    kFetched,
    // Each rank adds its slice of all ranks' numbers into another place of all ranks, as a sum or
    // an update that is stored apart from what it is made of; then it reads what came. `size`:
    // bytes of the numbers and the results. Stored plainly, or past the caches.
    kKept,
    kStreamed,
    // As kTogether: lines of targets asked for ahead, or of sources. Of hosts for which that makes
    // no difference (asks_ahead): a meeting.
    kWriteAhead,
    kReadAhead,
    kTurn,      // a few bytes go once through all hosts, one after the other
    kMessages,  // `size` messages of a few bytes each way, one behind the other
    kAtOnce,    // the same, but all posted before any is waited for
    kBulk,      // `size` bytes each way, in large messages, by as many ranks as all hosts have
    kSum,       // an all-reduce of `size` bytes a rank by `algorithm` (trial_probes.h)
  };
  Kind kind = Kind::kRounds;
  double size = 1;
  int repetitions = 1;
  std::string_view algorithm = {};  // of the registry
  bool operator==(const Probe&) const = default;
};

// What is measured in one go: in the order of `probes`, over and over, in kTurns turns, so that a
// burst of other work on the machine does not hit all repetitions of one; before each of them all
// meet, and each rank writes its numbers where that matters, as who computes them would.
struct ProbeGroup {
  static constexpr int kTurns = 3;
  std::string name;
  std::vector<Probe> probes = {};
  StepPlan step = {};   // stage 0: a meeting; stage 1 + i: probe i
  bool writes = false;  // each rank writes `elements` numbers before each repetition
  bool wire = false;    // between hosts
  // Within a host: how long all of it may take; 0: as long as it takes. See `another_turn`.
  double seconds = 0;
  // Within a host: no repetition begins so long after the first group of its run; 0: all do.
  double limit = 0;
  // float32 that the plans use of each rank's gradient and scratch spaces
  std::size_t elements = 0, scratch = 0;
};

// Whether a host that has needed so long for so many turns of a group begins the next: only if it
// will end in time when it takes as long as those did. So of each probe a third of the repetitions
// is done, however slow the machine is.
bool another_turn(const ProbeGroup& group, int turns, double seconds);

// `host`: of each rank.
ProbeGroup signal_probes(const std::vector<int>& host);
// For each size, in bytes of a rank; repetitions fit these. `hosts_of_machine`: that are at work on
// one machine at the same time.
ProbeGroup pass_probe(const std::vector<int>& host, std::size_t bytes, int hosts_of_machine = 1);
// Stores of both kinds in turn; `bytes`: of a rank, half numbers and half results.
ProbeGroup store_probe(const std::vector<int>& host, std::size_t bytes, int hosts_of_machine = 1);
// Whether sums in place of so many ranks ask for lines of the kind that they are told
// (engine/ops/reduce.h).
bool asks_ahead(std::size_t ranks);
// Sums in place that ask ahead for lines to be written, and to be read, in turn.
ProbeGroup line_probe(const std::vector<int>& host);
// Between hosts: how often what is measured there is for the caller to say (wire_probes.h). `bytes`
// of kBulk are those of a host.
ProbeGroup wire_group(std::string name, const std::vector<int>& host, std::vector<Probe> probes);

// Sizes of passes, ascending, where each rank has memory for `most` bytes: in the smallest each of
// `ranks` on a host has one block to add, small ones are for the caches, the last one is all.
std::vector<std::size_t> pass_sizes(std::size_t most, std::size_t ranks);

// Of stores, ascending; `touched`: bytes that a host's ranks touch in the largest.
std::vector<std::size_t> store_probe_sizes(std::size_t touched, std::size_t ranks);
// Bytes that one rank stores in one step of it.
double stored_at_once(const Probe& probe, std::size_t ranks);

// The plan of one probe.
Plan probe_plan(const Probe& probe, const std::vector<int>& host);

// Of all that these groups run, how often, over how many bytes, and the steps of their plans: costs
// that were measured by other ones are others.
std::uint64_t hash(const std::vector<ProbeGroup>& groups);

}  // namespace lockstep::collectives
