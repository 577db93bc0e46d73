// SPDX-License-Identifier: MIT
#include "strategies/synchronous/gpu_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "collectives/algorithms/vendor_sum.h"
#include "collectives/cost/gpu_costs.h"
#include "collectives/job/agreement.h"
#include "engine/base/error.h"
#include "strategies/synchronous/plan_record.h"

namespace lockstep::strategies {

namespace {

const std::string kWhat = "options of GPUs";

// Returns the first process of each process's machine: the hosts of a job whose processes share all
// GPUs.
std::vector<int> first_of_machine(const std::vector<int>& machine) {
  std::vector<int> with;
  for (const int one : machine)
    with.push_back(int(std::find(machine.begin(), machine.end(), one) - machine.begin()));
  return with;
}

// Sets the costs of one host from the specified rates of its GPU links. All processes use the first
// one's figures, since they may see other GPUs.
void find_sharing_costs(const collectives::Job& job, const engine::GpuTopology& links,
                        const GpuSharing& sharing, collectives::Topology& topology) {
  if (topology.hosts.size() > 1) return;
  std::string mine;
  if (job.rank() == 0) {
    std::vector<std::string> devices;
    for (const collectives::Topology::Rank& rank : topology.ranks) {
      const auto& gpus = links.gpus;
      const auto gpu = std::ranges::find(gpus, sharing.places[std::size_t(rank.process)],
                                         &engine::GpuTopology::Gpu::bus_id);
      devices.push_back(gpu == gpus.end() ? "unknown" : fmt::format("cuda:{}", gpu->index));
    }
    if (const auto costs = collectives::gpu_costs(links, devices)) {
      collectives::Topology known = topology;
      known.hosts[0].costs = *costs;
      mine = collectives::to_json(known);
    }
  }
  const std::vector<std::string> all = job.bootstrap().all_gather(mine, "costs of GPUs");
  if (all[0].empty()) return;
  topology.hosts[0].costs = collectives::topology_from_json(all[0]).hosts[0].costs;
}

}  // namespace

void GpuPath::find(collectives::Topology& topology, bool queued, const std::string& record) {
  find_vendor(topology, queued);
  if (queued && job_.bootstrap().processes() > 1) return share(topology, record);
  const GpuExchange asked = options_.step.gpu_exchange;
  if (asked != GpuExchange::kAutomatic)
    refuse(fmt::format(
        "gpu exchange {} is for GPUs of several processes, and this job has none: leave it out",
        name(asked)));
}

void GpuPath::refuse(const std::string& why) {
  collectives::leave_together(job_, kWhat);
  throw engine::Error(engine::Code::kInvalid, why);
}

void GpuPath::find_vendor(const collectives::Topology& topology, bool queued) {
  collectives::Bootstrap& bootstrap = job_.bootstrap();
  vendor_ = no_vendor_ = "";
  if (!queued) {
    no_vendor_ = "adds in memory of GPUs, and the replicas of this job are not on any";
  } else if (bootstrap.processes() == 1) {
    no_vendor_ = "is for GPUs of several processes, and one process adds on its GPUs itself";
  } else if (topology.ranks.size() != topology.processes.size()) {
    no_vendor_ = "takes one replica a process, each on a GPU of its own";
  }
  if (!no_vendor_.empty()) return;
  const std::string version = options_.vendor.version();
  const std::vector<std::string> versions = bootstrap.all_gather(version, "versions of NCCL");
  const std::vector<std::string> gpus =
      bootstrap.all_gather(options_.devices[0]->description(), "GPUs of the replicas");
  const std::vector<int> host = bootstrap.hosts();
  std::set<std::pair<int, std::string>> different;
  for (std::size_t process = 0; process < gpus.size(); ++process) {
    different.insert({host[process], gpus[process]});
    if (versions[process].empty()) {
      no_vendor_ = fmt::format("needs NCCL, and process {} has none", process);
      return;
    }
    if (versions[process] != versions[0]) {
      no_vendor_ = fmt::format("needs one NCCL, and process {} has {}, process 0 {}", process,
                               versions[process], versions[0]);
      return;
    }
  }
  if (different.size() < gpus.size()) {
    no_vendor_ = "takes one replica a GPU, and some processes of this job share one";
    return;
  }
  const std::size_t hosts = std::set<int>(host.begin(), host.end()).size();
  vendor_ = collectives::kVendorSums[hosts > 1 && hosts < host.size() ? 1 : 0];
}

// Keeps its result for later opens.
void GpuPath::share(collectives::Topology& topology, const std::string& record) {
  const GpuExchange asked = options_.step.gpu_exchange;
  collectives::require_same(job_, fmt::format("gpu exchange: {}\n", name(asked)), kWhat);
  const bool ipc = asked == GpuExchange::kIpc;
  if (!shares_ && asked != GpuExchange::kHost && (ipc || !vendor_adds(topology, record))) {
    const GpuSharing found = find_gpu_sharing(job_.bootstrap(), options_.devices);
    shares_ = found.any();
    if (ipc && (!found.any() || !found.refusal.empty()))
      refuse(fmt::format(
          "gpu exchange ipc: {}: use auto",
          found.refusal.empty() ? "no host of this job has several processes" : found.refusal));
    describe(found);
    if (found.any()) {
      topology = collectives::joined(std::move(topology), found.with);
      job_.set_hosts(topology.host_of_rank());
      find_sharing_costs(job_, options_.gpus, found, topology);
    }
  } else if (asked == GpuExchange::kHost) {
    sentence_ = "through memory of the host, because that was asked for";
  }
  if (shares_ && !vendor_.empty()) {
    vendor_.clear();
    no_vendor_ = "adds where processes have their GPUs to themselves, and these share them";
  }
}

void GpuPath::describe(const GpuSharing& found) {
  const std::string shared = fmt::format(
      "those of a host are ranks of one host, whose kernels reach the memory of all, {}",
      options_.step.gpu_exchange == GpuExchange::kIpc
          ? "because that was asked for"
          : "because their drivers open it to each other and NCCL does not add");
  const std::string apart = "through memory of the host, because " + found.refusal;
  if (found.refusal.empty()) {
    sentence_ = found.any() ? shared : "";
  } else {
    sentence_ = found.any() ? shared + "; on other hosts " + apart : apart;
  }
}

// Returns whether NCCL makes the sums, by step_design's rules: nothing prevents it, and no
// checkpoint of such a job has a plan for shared GPUs.
bool GpuPath::vendor_adds(const collectives::Topology& topology, const std::string& record) const {
  if (vendor_.empty()) return false;
  const StepChoices& asked = options_.step;
  DesignOptions options{
      .step = {.algorithm = asked.algorithm, .update = asked.update, .wire = asked.wire}};
  const collectives::Topology shared =
      collectives::joined(topology, first_of_machine(job_.bootstrap().hosts()));
  obey_record(record, shared.host_of_rank(), options, engine::Log("", engine::Log::Level::kError));
  return collectives::is_vendor_sum(options.step.algorithm.only()) ||
         allows_vendor_sums(options.step);
}

}  // namespace lockstep::strategies
