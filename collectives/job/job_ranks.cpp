// SPDX-License-Identifier: MIT
#include "collectives/job/job_ranks.h"

#include <unistd.h>

#include <algorithm>
#include <numeric>

namespace lockstep::collectives {
namespace {

// Returns the ranks for which `which` has this value.
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

JobRanks rank_of_each_process(Bootstrap& bootstrap) {
  std::vector<int> process(std::size_t(bootstrap.processes()));
  std::iota(process.begin(), process.end(), 0);
  return {bootstrap, std::move(process), bootstrap.hosts()};
}

JobRanks ranks_of(Bootstrap& bootstrap, const Topology& topology) {
  std::vector<int> process;
  for (const Topology::Rank& rank : topology.ranks) process.push_back(rank.process);
  return {bootstrap, std::move(process), topology.host_of_rank()};
}

JobRanks by_machine(JobRanks ranks) {
  const std::vector<int> machine = ranks.bootstrap.hosts();
  for (std::size_t rank = 0; rank < ranks.host.size(); ++rank)
    ranks.host[rank] = machine[std::size_t(ranks.process[rank])];
  return ranks;
}

int watch_host(const JobRanks& ranks, const std::vector<int>& pids, PeerWatch& watch) {
  int watched = 0;
  const std::vector<int> local = ranks.local();
  for (auto first = local.begin(); first != local.end();) {
    const int process = ranks.process[std::size_t(*first)];
    const auto next = std::find_if(
        first, local.end(), [&](int rank) { return ranks.process[std::size_t(rank)] != process; });
    const int pid = pids[std::size_t(process)];
    if (pid != int(getpid())) {
      watch.add({{first, next}, pid});
      ++watched;
    }
    first = next;
  }
  return watched;
}

}  // namespace lockstep::collectives
