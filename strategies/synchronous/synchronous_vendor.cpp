// SPDX-License-Identifier: MIT
// The start of sums by a vendor's library. See synchronous.h.
#include <algorithm>
#include <utility>

#include "collectives/algorithms/vendor_sum.h"
#include "engine/base/error.h"
#include "strategies/synchronous/synchronous.h"

namespace lockstep::strategies {

// Creates the vendor's communicator if the step has such sums. Collective.
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
    if (shared_.team && shared_.team->stopped()) shared_.team->rethrow();
  };
  auto sums = std::make_unique<VendorSums>(*job_, options_.vendor.open(job_->bootstrap(), options),
                                           mirror.kernels());
  using collectives::Space;
  const std::size_t width = engine::size_of(mirror.graph.dtype());
  sums->add_memory(shared_.team->base(mirror.rank, Space::kGradient),
                   mirror.graph.trainable() * width);
  vendor_sums_ = std::move(sums);
}

void Synchronous::watch_vendor() {
  if (!vendor_sums_) return;
  vendor_sums_->watch([this] {
    mirrors_[0]->executor().listen();
    if (shared_.team->stopped()) shared_.team->rethrow();
  });
}

}  // namespace lockstep::strategies
