// SPDX-License-Identifier: MIT
#include "collectives/job/gpu_calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "collectives/cost/cost_cache.h"
#include "collectives/cost/gpu_costs.h"
#include "engine/base/error.h"
#include "engine/base/version.h"
#include "engine/ops/ops.h"

namespace lockstep::collectives {
namespace {

// Increased when the measurement changes, since older costs are of no use then.
constexpr int kGpuCostsVersion = 1;

std::string gpu_fingerprint(const Topology& topology, const GpuCalibration& how) {
  std::string text =
      fmt::format("lockstep {}, costs of GPUs {}\n", engine::version(), kGpuCostsVersion);
  for (engine::Device* device : how.devices)
    text += fmt::format("{}: {}\n", to_string(device->id()), device->description());
  return fingerprint(topology, text + fmt::format("{}", fmt::join(describe(how.gpus), "\n")));
}

void connect(const std::vector<engine::Device*>& devices) {
  for (engine::Device* from : devices)
    for (engine::Device* to : devices)
      engine::require(from->reach(*to),
                      "{} and {} do not reach each other's memory, so no replicas can be on both "
                      "(lockstep doctor tells)",
                      to_string(from->id()), to_string(to->id()));
}

Topology measured_gpus(Topology topology, const GpuCalibration& how) {
  connect(how.devices);
  std::vector<std::string> names;
  for (engine::Device* device : how.devices) names.push_back(to_string(device->id()));
  const std::vector<std::string> each = each_gpu(names);
  std::vector<std::unique_ptr<engine::Ops>> ops;
  std::vector<GpuRank> ranks;
  for (std::size_t i = 0; i < names.size(); ++i) {
    ops.push_back(how.devices[i]->ops(engine::DType::kFloat32, {}));
    ranks.push_back({ops.back().get(),
                     std::size_t(std::ranges::find(each, names[i]) - each.begin()), names[i]});
  }
  topology.hosts[0].costs = gpu_costs(how.gpus, names, measure_gpus(ranks, how.probes));
  topology.costs_are = "measured";
  return topology;
}

Calibration stored_here(const Topology& topology, const GpuCalibration& how,
                        const std::string& fingerprint, const char* instead) {
  engine::invariant(topology.processes.size() == 1, "GPUs are measured by one process");
  Calibration result;
  result.topology = topology;
  if (how.cache.empty() || how.fresh) return result;
  const CostCache cache(how.cache);
  const std::optional<std::string> text = cache.read(fingerprint);
  if (!text) return result;
  try {
    result.topology = costs_from(*text, fingerprint, topology);
    result.cached = true;
  } catch (const engine::Error& error) {
    result.note = fmt::format("{} is ignored, and {}: {}", cache.file(fingerprint).string(),
                              instead, error.what());
  }
  return result;
}

}  // namespace

Calibration stored_gpu_costs(const Topology& topology, const GpuCalibration& how) {
  const auto begin = engine::Clock::now();
  Calibration result =
      stored_here(topology, how, gpu_fingerprint(topology, how), "costs are assumed");
  result.seconds = engine::seconds_since(begin);
  return result;
}

Calibration calibrate_gpus(const Topology& topology, const GpuCalibration& how) {
  const auto begin = engine::Clock::now();
  const std::string fingerprint = gpu_fingerprint(topology, how);
  Calibration result = stored_here(topology, how, fingerprint, "its costs are measured anew");
  if (!result.cached) {
    result.topology = measured_gpus(topology, how);
    if (!how.cache.empty()) {
      try {
        CostCache(how.cache).write(fingerprint, result.topology);
        result.kept = true;
      } catch (const engine::Error& error) {
        result.note += (result.note.empty() ? "" : "; ") + std::string(error.what());
      }
    }
  }
  result.seconds = engine::seconds_since(begin);
  return result;
}

}  // namespace lockstep::collectives
