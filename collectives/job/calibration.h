// SPDX-License-Identifier: MIT
// Measures the costs between the ranks of a job. Within each host these are signals, reductions,
// and passes over memory of several sizes. Between hosts they are latency, messages and bytes, over
// the transport that the ranks will use. collectives/cost/probes.h defines what runs, and
// collectives/cost/calibration.h turns times into costs. All ranks end with the same numbers.
//
// A second job of the same shape on the same machines takes the costs from a file
// (collectives/cost/cost_cache.h), which the first process reads and writes. Costs that were
// measured while other work had the processors are used but not kept: the next job measures anew.
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
  std::filesystem::path cache = {};  // folder of the files; empty: no files
  bool fresh = false;                // measures anew and stores, without reading
  // If true, only all-reduces are timed (collectives/topology/trial.h), for as long as a start may
  // wait. All other costs are assumed. Only for one host.
  bool trials_alone = false;
  // Seconds of all trials together. They take three times as long on one host with more ranks than
  // processors.
  double trials = 40e-3;
  // Most bytes that all ranks of a host touch. 0: so many that the last cache holds few of them.
  std::size_t most_touched = 0;
  // Receives one line, once, if measuring takes longer than `notice_after` (on slow networks). It
  // is called on the first process, on a thread of its own. It must not throw.
  std::function<void(const std::string&)> tell = {};
  std::chrono::milliseconds notice_after{2000};
  // Returns how long a rank's thread waited for a processor (collectives/run/processor_wait.h).
  // Tests replace it.
  std::function<double()> waited = seconds_without_processor;
};

struct Calibration {
  Topology topology;    // `costs_are` "measured"; after trials alone "assumed"
  double seconds = 0;   // time of this call
  bool cached = false;  // the costs are from a file
  // When that file was written, "2026-11-28 23:40", on the first process; else empty.
  std::string written = {};
  bool kept = false;       // measured now and stored for the next job
  bool disturbed = false;  // other work disturbed it: not stored
  // A line for the user, on the first process, else empty. It says what was wrong with that file,
  // or that the costs are not kept since other work disturbed them.
  std::string note = {};
};

// Returns the costs that such a job measured before, if the folder has all of them. Otherwise the
// topology is unchanged and `cached` is false. Collective over all processes of the job.
// `topology`: of the job's ranks, from discover(). Takes only some small exchanges.
Calibration stored_costs(Job& job, const Topology& topology, const CalibrationOptions& options);

// Returns the stored costs, or measures them if there are none. Runs one thread for each rank of
// this process, bound as in training; `ops` is for all of them. Takes some 100 MiB of memory per
// host for a while. Takes some tenths of a second on any machine and network
// (collectives/cost/wire_probes.h says what is left out on slow ones). Throws Error(kTimeout) and
// Error(kPeerLost), which name ranks, and what mapping and connecting throw.
Calibration calibrate(Job& job, const Topology& topology, const engine::Ops& ops,
                      const CalibrationOptions& options);

}  // namespace lockstep::collectives
