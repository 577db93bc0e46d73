// SPDX-License-Identifier: MIT
#include "engine/cuda/plan_caches.h"

#include <utility>

namespace lockstep::engine::cuda {

PlanCaches::PlanCaches(std::filesystem::path folder, Log log)
    : folder_(std::move(folder)), log_(std::move(log)) {}

PlanCache& PlanCaches::of(const std::string& machine) {
  const std::lock_guard lock(mutex_);
  return caches_.try_emplace(machine, folder_, machine, log_).first->second;
}

}  // namespace lockstep::engine::cuda
