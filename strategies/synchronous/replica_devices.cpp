// SPDX-License-Identifier: MIT
#include "strategies/synchronous/replica_devices.h"

#include <string>

#include "engine/base/error.h"

namespace lockstep::strategies {

void require_possible_devices(const SynchronousOptions& options, const engine::Ops& ops) {
  if (ops.in_host_memory()) return;
  constexpr std::size_t kMostReplicas = 64;  // replicas that one kernel can add
  const std::string first = to_string(options.devices[0]->id());
  engine::require(options.devices.size() <= kMostReplicas,
                  "{} replicas on {}: at most {} have their gradients added there",
                  options.devices.size(), first, kMostReplicas);
  engine::require(
      options.memory_limit == 0, engine::Option::kMemoryFraction,
      "a memory limit is of the host's memory, and replicas are on {}: give a fraction, "
      "or bytes, of its memory instead",
      first);
  engine::require(options.step.kernels.value_or(engine::Kernels::kAuto) == engine::Kernels::kAuto,
                  engine::Option::kKernels, "{} has no choice of kernels: leave it out", first);
  // Gradients are added by kernels that read and write the memory of all replicas.
  for (engine::Device* from : options.devices) {
    for (engine::Device* to : options.devices)
      engine::require(
          from->reach(*to), engine::Option::kDevices,
          "replicas on {} and {} do not reach each other's memory: give devices that do (lockstep "
          "doctor tells), or one device for all of them, such as {}",
          to_string(from->id()), to_string(to->id()), first);
  }
}

}  // namespace lockstep::strategies
