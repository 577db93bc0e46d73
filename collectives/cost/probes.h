// SPDX-License-Identifier: MIT
// Probes: small plans whose times tell the costs of a machine. The executor runs them like all
// plans, with all ranks of a job at once. The simulator predicts their times, and calibration.h
// turns the difference into costs. Probes within a host run on all hosts at the same time, each for
// itself. In probes between hosts, every host sends to the next one and receives from the previous
// one. All functions are pure and thread-safe.
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
    kRounds,      // `size` rounds: arrive, await the host's ranks
    kArrivals,    // one round, then `size` arrivals without awaits
    kReductions,  // one round, then `size` small reductions
    // Sum of `size` bytes per rank: each rank adds its slice of all ranks into all.
    kTogether,
    kAlone,  // the same, by the host's first rank alone
    // Each rank adds its slice of all ranks' numbers into its own. Then it takes the next rank's
    // sums, in place of numbers that others have read. Algorithms that store only locally do this.
    kFetched,
    // Each rank adds its slice of all ranks' numbers into another place of all ranks, like an
    // out-of-place sum or update. Then it reads the results. `size`: bytes of the numbers and the
    // results. The stores are plain (kKept) or non-temporal (kStreamed).
    kKept,
    kStreamed,
    // Runs kTogether with prefetching of target lines or of source lines. It is only a barrier on
    // hosts for which that makes no difference (asks_ahead).
    kWriteAhead,
    kReadAhead,
    kTurn,      // a small message passes all hosts once
    kMessages,  // `size` small messages each way, one by one
    kAtOnce,    // the same, but all posted before waits
    // `size` bytes each way, in large messages, by as many ranks as every host has.
    kBulk,
    kSum,  // all-reduce of `size` bytes per rank (trial_probes.h)
  };
  Kind kind = Kind::kRounds;
  double size = 1;
  int repetitions = 1;
  std::string_view algorithm = {};  // name in the registry
  bool operator==(const Probe&) const = default;
};

// Holds probes that are measured together: in the order of `probes`, over and over, in kTurns
// rounds. So a burst of other load does not hit all repetitions of one probe. Before each
// repetition all ranks synchronize. If it matters, each rank then writes its numbers, like the code
// that computes them.
struct ProbeGroup {
  static constexpr int kTurns = 3;
  std::string name;
  std::vector<Probe> probes = {};
  StepPlan step = {};   // [0]: barrier; [1 + i]: probe i
  bool writes = false;  // each rank writes `elements` numbers before each repetition
  bool wire = false;    // runs between hosts
  // Within a host: time limit of the group in seconds; 0: none. See `another_turn`.
  double seconds = 0;
  // Within a host: no repetition begins so many seconds after the first group of its run; 0: no
  // limit.
  double limit = 0;
  // Numbers of float32 that the plans use in each rank's gradient and scratch spaces.
  std::size_t elements = 0, scratch = 0;
};

// Returns whether a host that took `seconds` for `turns` rounds of a group begins the next round.
// It does if a round as long as these ends in time. So each probe gets a third of its repetitions,
// however slow the machine is.
bool another_turn(const ProbeGroup& group, int turns, double seconds);

// Returns the probes of signals. `host`: one entry per rank.
ProbeGroup signal_probes(const std::vector<int>& host);
// Returns the probes of passes with `bytes` per rank and suitable repetitions. `hosts_of_machine`:
// hosts that run on one machine at the same time.
ProbeGroup pass_probe(const std::vector<int>& host, std::size_t bytes, int hosts_of_machine = 1);
// Returns the probes of both kinds of stores. `bytes`: per rank, half numbers and half results.
ProbeGroup store_probe(const std::vector<int>& host, std::size_t bytes, int hosts_of_machine = 1);
// Returns whether in-place sums of so many ranks prefetch lines of the kind that they are told
// (engine/ops/reduce.h).
bool asks_ahead(std::size_t ranks);
// Returns the probes of in-place sums that prefetch lines for writing, and for reading,
// alternately.
ProbeGroup line_probe(const std::vector<int>& host);
// Returns a group of probes between hosts. The caller sets their repetitions (wire_probes.h). The
// size of kBulk is in bytes per host.
ProbeGroup wire_group(std::string name, const std::vector<int>& host, std::vector<Probe> probes);

// Returns the sizes of passes, ascending, if each rank has memory for `most` bytes. In the smallest
// each of a host's `ranks` adds one block; small ones fit in caches; the last one is `most`.
std::vector<std::size_t> pass_sizes(std::size_t most, std::size_t ranks);

// Returns the sizes of store probes, ascending. `touched`: bytes that a host's ranks touch in the
// largest.
std::vector<std::size_t> store_probe_sizes(std::size_t touched, std::size_t ranks);
// Returns the bytes that one rank stores in one step of a store probe.
double stored_at_once(const Probe& probe, std::size_t ranks);

// Returns the plan of one probe.
Plan probe_plan(const Probe& probe, const std::vector<int>& host);

// Returns a hash of the probe groups with their repetitions, sizes and steps. Cached costs are
// valid only for the same hash.
std::uint64_t hash(const std::vector<ProbeGroup>& groups);

}  // namespace lockstep::collectives
