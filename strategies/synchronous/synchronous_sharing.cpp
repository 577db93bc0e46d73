// SPDX-License-Identifier: MIT
// Processes of a host that use memory of each other's GPUs: whether they do, and what is said of
// it. See synchronous.h and gpu_sharing.h.
#include <algorithm>
#include <utility>

#include "collectives/algorithms/vendor_sum.h"
#include "collectives/cost/gpu_costs.h"
#include "engine/base/error.h"
#include "strategies/synchronous/plan_record.h"
#include "strategies/synchronous/synchronous.h"

namespace lockstep::strategies {

namespace {

// Each machine one host: what a job looks like whose processes share all GPUs.
std::vector<int> by_machine(const std::vector<int>& machine) {
  std::vector<int> with;
  for (const int one : machine)
    with.push_back(int(std::find(machine.begin(), machine.end(), one) - machine.begin()));
  return with;
}

}  // namespace

// Collective where replicas are on GPUs of several processes; what it finds holds from then on.
void Synchronous::share_gpus() {
  const GpuExchange asked = options_.step.gpu_exchange;
  const auto refuse = [&](const std::string& why) {
    leave_together("flags of GPUs");
    engine::fail(engine::Code::kInvalid, "{}", why);
  };
  const bool several = queued_ && bootstrap_.processes() > 1;
  if (!several && asked != GpuExchange::kAutomatic)
    refuse(fmt::format(
        "gpu exchange {} is for GPUs of several processes, and this job has none: leave it out",
        strategies::name(asked)));
  if (!several) return;
  compare(fmt::format("gpu exchange: {}\n", strategies::name(asked)), "flags of GPUs");
  const bool ipc = asked == GpuExchange::kIpc;
  if (!shares_gpus_.value_or(false) && asked != GpuExchange::kHost && (ipc || !vendor_adds())) {
    const GpuSharing found = find_gpu_sharing(bootstrap_, options_.devices);
    shares_gpus_ = found.any();
    if (ipc && (!found.any() || !found.refusal.empty()))
      refuse(fmt::format(
          "gpu exchange ipc: {}: use auto",
          found.refusal.empty() ? "no host of this job has several processes" : found.refusal));
    say_of_gpus(found);
    if (found.any()) {
      topology_ = collectives::joined(std::move(topology_), found.with);
      host_ = topology_.host_of_rank();
      find_sharing_costs(found);
    }
  } else if (asked == GpuExchange::kHost) {
    gpu_exchange_ = "through memory of the host, because that was asked for";
  }
  if (shares_gpus_.value_or(false) && !vendor_.empty()) {
    vendor_.clear();
    no_vendor_ = "adds where processes have their GPUs to themselves, and these share them";
  }
}

void Synchronous::say_of_gpus(const GpuSharing& found) {
  const std::string shared = fmt::format(
      "those of a host are ranks of one host, whose kernels reach the memory of all, {}",
      options_.step.gpu_exchange == GpuExchange::kIpc
          ? "because that was asked for"
          : "because their drivers open it to each other and NCCL does not add");
  const std::string apart = "through memory of the host, because " + found.refusal;
  if (found.refusal.empty()) {
    gpu_exchange_ = found.any() ? shared : "";
  } else {
    gpu_exchange_ = found.any() ? shared + "; on other hosts " + apart : apart;
  }
}

// Whether NCCL does, as step_design chooses: where nothing speaks against it, and no checkpoint of
// a job like this has a plan for shared GPUs.
bool Synchronous::vendor_adds() const {
  if (vendor_.empty()) return false;
  const StepChoices& asked = options_.step;
  DesignOptions options{
      .step = {.algorithm = asked.algorithm, .update = asked.update, .wire = asked.wire}};
  const collectives::Topology shared =
      collectives::joined(topology_, by_machine(bootstrap_.hosts()));
  obey_record(open_.plan, shared.host_of_rank(), options,
              engine::Log("", engine::Log::Level::kError));
  return collectives::is_vendor_sum(options.step.algorithm.only()) ||
         allows_vendor_sums(options.step);
}

// Of one host, as the first process knows its GPUs: by what their links are specified to carry. All
// take its figures, since they may see other GPUs.
void Synchronous::find_sharing_costs(const GpuSharing& sharing) {
  if (topology_.hosts.size() > 1) return;
  std::string mine;
  if (first_rank() == 0) {
    std::vector<std::string> devices;
    for (const collectives::Topology::Rank& rank : topology_.ranks) {
      const auto& gpus = options_.gpus.gpus;
      const auto gpu = std::ranges::find(gpus, sharing.places[std::size_t(rank.process)],
                                         &engine::GpuTopology::Gpu::bus_id);
      devices.push_back(gpu == gpus.end() ? "unknown" : fmt::format("cuda:{}", gpu->index));
    }
    if (const auto costs = collectives::gpu_costs(options_.gpus, devices)) {
      collectives::Topology known = topology_;
      known.hosts[0].costs = *costs;
      mine = collectives::to_json(known);
    }
  }
  const std::vector<std::string> all = bootstrap_.all_gather(mine, "costs of GPUs");
  if (all[0].empty()) return;
  topology_.hosts[0].costs = collectives::topology_from_json(all[0]).hosts[0].costs;
}

}  // namespace lockstep::strategies
