// SPDX-License-Identifier: MIT
#include "strategies/job_ranks.h"

#include <algorithm>
#include <numeric>

namespace lockstep::strategies {
namespace {

// The ranks that `which` has as `value`.
std::vector<int> where(const std::vector<int>& which, int value) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < which.size(); ++rank)
    if (which[rank] == value) ranks.push_back(int(rank));
  return ranks;
}

}  // namespace

std::vector<int> JobRanks::mine() const {
  return where(process, bootstrap.process());
}

std::vector<int> JobRanks::local() const {
  return where(host, host[std::size_t(mine().front())]);
}

bool JobRanks::one_host() const {
  return std::all_of(host.begin(), host.end(), [&](int h) { return h == host[0]; });
}

JobRanks rank_of_each_process(collectives::Bootstrap& bootstrap) {
  std::vector<int> process(std::size_t(bootstrap.processes()));
  std::iota(process.begin(), process.end(), 0);
  return {bootstrap, std::move(process), bootstrap.hosts()};
}

}  // namespace lockstep::strategies
