// SPDX-License-Identifier: MIT
#include "strategies/session/gpu_deal.h"

#include "engine/base/error.h"

namespace lockstep::strategies {

std::vector<int> deal_gpus(const GpuDeal& deal) {
  engine::invariant(deal.number >= 0 && deal.number < deal.among, "a process is one of its number");
  engine::require(
      deal.gpus >= deal.among, engine::Option::kDevice,
      "{} processes on this host are too many for one of its {} GPUs each: start at most "
      "{} here (mpirun --map-by ppr:{}:node), or name a device that they may share, such as cuda:0",
      deal.among, deal.gpus, deal.gpus, deal.gpus);
  const int first = deal.number * deal.gpus / deal.among;
  const int share = (deal.number + 1) * deal.gpus / deal.among - first;
  const int replicas = deal.replicas.value_or(share);
  std::vector<int> of;
  for (int i = 0; i < replicas; ++i)
    of.push_back(first + (replicas <= share ? i : i * share / replicas));
  return of;
}

}  // namespace lockstep::strategies
