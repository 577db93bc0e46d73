// SPDX-License-Identifier: MIT
#include "strategies/synchronous/rank_costs.h"

#include <fmt/format.h>

#include <utility>

#include "collectives/job/calibration.h"
#include "collectives/job/gpu_calibration.h"

namespace lockstep::strategies {
namespace {

// Finds costs of one process's replicas on GPUs. The start of a job measures nothing.
std::string find_gpu_costs(collectives::Topology& topology, const SynchronousOptions& options) {
  if (options.measured) {
    collectives::Calibration found = collectives::stored_gpu_costs(
        topology, {.devices = options.devices, .gpus = options.gpus, .cache = options.cost_cache});
    if (!found.note.empty()) options.log.warning("{}", found.note);
    if (found.cached) {
      topology = std::move(found.topology);
      return "measured before, and read from " + options.cost_cache.string();
    }
  }
  const std::string how_to = " (lockstep plan with these devices measures and keeps them)";
  const std::vector<std::string> links = describe(options.gpus);
  if (!links.empty())
    return fmt::format("assumed, as links of such GPUs are specified, and not measured{}: {}",
                       how_to, fmt::join(links, "; "));
  return options.measured ? "assumed, since none are kept of such GPUs" + how_to
                          : "assumed, since nothing was measured";
}

collectives::Calibration measure(collectives::Job& job, const collectives::Topology& topology,
                                 const SynchronousOptions& options,
                                 const collectives::CalibrationOptions& calibration) {
  const auto ops = options.devices[0]->ops(engine::DType::kFloat32, {.threads = 1});
  try {
    return collectives::calibrate(job, topology, *ops, calibration);
  } catch (...) {  // on all processes, which leave one by one
    job.expect_deaths(true);
    throw;
  }
}

}  // namespace

std::string find_costs(collectives::Job& job, collectives::Topology& topology,
                       const SynchronousOptions& options, bool queued) {
  if (queued && job.bootstrap().processes() == 1) return find_gpu_costs(topology, options);
  if (queued) return "assumed: between GPUs of several processes nothing is measured yet";
  if (!options.measured) return "assumed, since nothing was measured";
  collectives::CalibrationOptions calibration;
  calibration.cache = options.cost_cache;
  calibration.most_touched = options.most_touched;
  calibration.tell = [&options](const std::string& line) { options.log.info("{}", line); };
  calibration.trials_alone = topology.hosts.size() == 1;
  collectives::Calibration found = measure(job, topology, options, calibration);
  if (!found.note.empty()) options.log.warning("{}", found.note);
  topology = std::move(found.topology);
  const std::string folder = options.cost_cache.string();
  if (found.cached) return "measured before, and read from " + folder;
  std::string text;
  if (!calibration.trials_alone) {
    text = fmt::format("measured in {:.2f} s while the job started", found.seconds);
  } else if (topology.trials.empty()) {
    text = "assumed, since other work disturbed what was timed";
  } else {
    text = fmt::format("all-reduces timed in {:.2f} s while the job started, the rest assumed",
                       found.seconds);
  }
  if (found.kept) text += ", and kept in " + folder + " for the next such job";
  if (found.disturbed) text += "; not kept, since the machine is busy with other work";
  return text;
}

}  // namespace lockstep::strategies
