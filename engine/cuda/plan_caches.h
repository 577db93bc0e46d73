// SPDX-License-Identifier: MIT
// The plan caches of a process, one for each kind of GPU. All GPUs of a kind and all replicas on
// them thus use the same kernels. Thread-safe. A call costs a map lookup.
#pragma once
#include <filesystem>
#include <map>
#include <mutex>
#include <string>

#include "engine/cuda/plan_cache.h"

namespace lockstep::engine::cuda {

class PlanCaches {
 public:
  // Creates caches whose files are in `folder`; empty: no files.
  PlanCaches(std::filesystem::path folder, Log log);

  // Returns the cache of a machine, which lives as long as this object.
  PlanCache& of(const std::string& machine);

 private:
  const std::filesystem::path folder_;
  const Log log_;
  std::mutex mutex_;
  std::map<std::string, PlanCache> caches_;
};

}  // namespace lockstep::engine::cuda
