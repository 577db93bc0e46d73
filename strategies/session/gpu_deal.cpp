// SPDX-License-Identifier: MIT
#include "strategies/session/gpu_deal.h"

#include "engine/base/error.h"

namespace lockstep::strategies {

std::vector<int> deal_gpus(const GpuDeal& deal) {
  int first = 0, share = deal.gpus;
  if (!deal.chosen || deal.gpus > 1) {
    engine::require(
        deal.gpus >= deal.local_size,
        "{} processes on this host are too many for one of its {} GPUs each: start at "
        "most {} here (mpirun --map-by ppr:{}:node), or name what they may share, as in "
        "--device cuda:0",
        deal.local_size, deal.gpus, deal.gpus, deal.gpus);
    first = deal.local_rank * deal.gpus / deal.local_size;
    share = (deal.local_rank + 1) * deal.gpus / deal.local_size - first;
  }
  const int replicas = deal.replicas.value_or(share);
  std::vector<int> of;
  for (int i = 0; i < replicas; ++i)
    of.push_back(first + (replicas <= share ? i : i * share / replicas));
  return of;
}

}  // namespace lockstep::strategies
