// SPDX-License-Identifier: MIT
// The plan caches of a process: one for each kind of GPU, so that all GPUs of a kind, and all
// replicas on them, compute with the same kernels. Any thread. Costs a look into a map.
#pragma once
#include <filesystem>
#include <map>
#include <mutex>
#include <string>

#include "engine/cuda/plan_cache.h"

namespace lockstep::engine::cuda {

class PlanCaches {
 public:
  // `folder`: of the files; empty: there are none.
  PlanCaches(std::filesystem::path folder, Log log);

  // Lives as long as this.
  PlanCache& of(const std::string& machine);

 private:
  const std::filesystem::path folder_;
  const Log log_;
  std::mutex mutex_;
  std::map<std::string, PlanCache> caches_;
};

}  // namespace lockstep::engine::cuda
