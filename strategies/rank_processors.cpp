// SPDX-License-Identifier: MIT
#include "strategies/rank_processors.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "collectives/machine.h"

namespace lockstep::strategies {

// A quota is taken as one that all processes of the host share: a launcher puts them into one
// container.
RankProcessors processors_of_ranks(const JobRanks& ranks, const std::string& what) {
  const collectives::Machine machine = collectives::machine();
  const auto all =
      ranks.bootstrap.all_gather(collectives::to_text(collectives::allowed_processors()), what);
  const std::size_t me = std::size_t(ranks.bootstrap.process());
  const std::vector<int> local = ranks.local();
  std::vector<collectives::HostProcess> here;
  std::set<int> together;
  std::size_t mine = 0;
  for (std::size_t process = 0; process < all.size(); ++process) {
    const auto replicas = std::count_if(local.begin(), local.end(), [&](int rank) {
      return ranks.process[std::size_t(rank)] == int(process);
    });
    if (replicas == 0) continue;
    if (process == me) mine = here.size();
    here.push_back({collectives::processors_of(all[process]), int(replicas)});
    together.insert(here.back().processors.begin(), here.back().processors.end());
  }
  int most = std::max(1, int(together.size()));
  if (machine.quota > 0) most = std::min(most, std::max(1, int(std::ceil(machine.quota))));
  return {collectives::plan_binding(here, mine, 1, machine.cores), most};
}

}  // namespace lockstep::strategies
