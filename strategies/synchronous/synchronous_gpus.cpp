// SPDX-License-Identifier: MIT
// What replicas of one process on GPUs cost each other: a start does not measure it.
#include <fmt/format.h>

#include "collectives/job/gpu_calibration.h"
#include "strategies/synchronous/synchronous.h"

namespace lockstep::strategies {

void Synchronous::find_gpu_costs() {
  const std::string how_to = " (lockstep plan with these devices measures and keeps them)";
  const std::vector<std::string> links = describe(options_.gpus);
  costs_are_ = links.empty() ? "assumed, since none are kept of such GPUs" + how_to
                             : fmt::format(
                                   "assumed, as links of such GPUs are specified, and not "
                                   "measured{}: {}",
                                   how_to, fmt::join(links, "; "));
  if (!options_.measured) {
    if (links.empty()) costs_are_ = "assumed, since nothing was measured";
    return;
  }
  collectives::Calibration found = collectives::stored_gpu_costs(
      topology_,
      {.devices = options_.devices, .gpus = options_.gpus, .cache = options_.cost_cache});
  if (!found.note.empty()) options_.log.warning("{}", found.note);
  if (!found.cached) return;
  topology_ = std::move(found.topology);
  costs_are_ = "measured before, and read from " + options_.cost_cache.string();
}

}  // namespace lockstep::strategies
