// SPDX-License-Identifier: MIT
// Measures what the ranks of a job cost each other: signals, reductions, passes over memory of
// several sizes within each host; latency, messages and bytes between hosts, over the transport
// that they will use. What is run stands in collectives/cost/probes.h, what becomes of the times in
// collectives/cost/calibration.h. All ranks end with the same numbers.
//
// A second job of the same shape on the same machines takes them from a file
// (collectives/cost/cost_cache.h) which the first process reads and writes. What was measured while
// other work had the processors is used, and not kept: the next job measures anew.
#pragma once
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include "collectives/job/job.h"
#include "collectives/run/processor_wait.h"
#include "collectives/topology/topology.h"
#include "engine/ops/ops.h"

namespace lockstep::collectives {

struct CalibrationOptions {
  std::filesystem::path cache = {};  // folder of the files; empty: none is read or written
  bool fresh = false;                // do not read; what is measured is stored
  // On one host: only times all-reduces (collectives/topology/trial.h), for as long as a start may
  // wait. All other costs are assumed.
  bool trials_alone = false;
  // s: of all trials together; on one host where ranks are more than processors three times as
  // much.
  double trials = 40e-3;
  // Bytes that all ranks of a host touch at most; 0: so many that the last cache holds little.
  std::size_t most_touched = 0;
  // Told a line, once, on the first process and from a thread of its own, where measuring takes
  // longer than `notice_after`: over slow wires. Must not throw.
  std::function<void(const std::string&)> tell = {};
  std::chrono::milliseconds notice_after{2000};
  // Tests: what the kernel says of a rank's thread (collectives/run/processor_wait.h).
  std::function<double()> waited = seconds_without_processor;
};

struct Calibration {
  Topology topology;       // `costs_are` "measured"; "assumed" beside trials alone
  double seconds = 0;      // that it took
  bool cached = false;     // the costs are from a file
  bool kept = false;       // they were measured now, and are in that file for the next job
  bool disturbed = false;  // by other work, so that they are not kept
  // For who started the job, one line, on the first process; else empty: what was wrong with that
  // file, or that the costs are not kept since other work disturbed them.
  std::string note = {};
};

// Collective, for all processes of the job. `topology`: of the job's ranks, as discover() gave it.
// What such a job measured before, where the folder has it whole; else nothing: then the topology
// is as it came, and `cached` is false. Some small exchanges, no other time.
Calibration stored_costs(Job& job, const Topology& topology, const CalibrationOptions& options);

// The same, and measures where there are none. A thread for each rank of this process, bound as
// ranks that train or are timed would be; `ops`: for all of them. Takes memory for a while: some
// 100 MiB a host. Some tenths of a second, however slow the machine and the wire are
// (collectives/cost/wire_probes.h says what is left out there). Throws Error(kTimeout) and
// Error(kPeerLost) naming ranks, and what mapping and connecting throw.
Calibration calibrate(Job& job, const Topology& topology, const engine::Ops& ops,
                      const CalibrationOptions& options);

}  // namespace lockstep::collectives
