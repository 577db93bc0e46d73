// SPDX-License-Identifier: MIT
// Sums that a vendor's library makes: whether there are any, and their beginning and end. See
// synchronous.h.
#include <algorithm>
#include <set>
#include <utility>

#include "collectives/algorithms/vendor_sum.h"
#include "engine/base/error.h"
#include "strategies/synchronous/synchronous.h"

namespace lockstep::strategies {

// Which of them serves these replicas best, or why none does, as the end of a sentence; and whether
// processes share their GPUs. Collective where replicas are on GPUs of several processes.
void Synchronous::find_vendor() {
  vendor_ = no_vendor_ = "";
  look_for_vendor();
  share_gpus();
}

void Synchronous::look_for_vendor() {
  if (!queued_) {
    no_vendor_ = "adds in memory of GPUs, and the replicas of this job are not on any";
  } else if (bootstrap_.processes() == 1) {
    no_vendor_ = "is for GPUs of several processes, and one process adds on its GPUs itself";
  } else if (topology_.ranks.size() != topology_.processes.size()) {
    no_vendor_ = "takes one replica a process, each on a GPU of its own";
  }
  if (!no_vendor_.empty()) return;
  const std::string version = options_.vendor.version();
  const std::vector<std::string> versions = bootstrap_.all_gather(version, "versions of NCCL");
  const std::vector<std::string> gpus =
      bootstrap_.all_gather(options_.devices[0]->description(), "GPUs of the replicas");
  const std::vector<int> host = bootstrap_.hosts();
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

// Collective, where the step has such sums.
void Synchronous::open_vendor() {
  const bool wanted = std::ranges::any_of(design_.plan, [](const collectives::Stage& stage) {
    return collectives::is_vendor_sum(stage.plan.algorithm);
  });
  if (!wanted) return;
  Mirror& mirror = *mirrors_[0];
  collectives::DeviceCommunicatorOptions options;
  options.hierarchical = design_.algorithm == collectives::kVendorSums[1];
  options.deadline = deadline();
  options.throw_if_lost = [this] {
    if (team_ && team_->stopped()) team_->rethrow();
  };
  auto sums = std::make_unique<VendorSums>(options_.vendor.open(bootstrap_, options),
                                           mirror.kernels(), deadline());
  using collectives::Space;
  const std::size_t width = engine::size_of(mirror.graph.dtype());
  sums->add_memory(team_->base(mirror.rank, Space::kGradient), mirror.graph.trainable() * width);
  const std::scoped_lock lock(watch_mutex_);
  vendor_sums_ = std::move(sums);
}

void Synchronous::watch_vendor() {
  if (!vendor_sums_) return;
  vendor_sums_->watch([this] {
    mirrors_[0]->executor().listen();
    if (team_->stopped()) team_->rethrow();
  });
}

}  // namespace lockstep::strategies
