// SPDX-License-Identifier: MIT
#include "collectives/job/rank_processors.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "collectives/topology/machine.h"
#include "collectives/topology/processor_map.h"

namespace lockstep::collectives {

namespace {

// Holds what a process reports: its processors, its machine, and its quota in whole processors (0:
// none). Virtual hosts of one machine run under one kernel.
struct Said {
  std::vector<int> processors = {};
  std::string kernel = {};
  int quota = 0;
};

std::string mine(const Machine& machine) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string kernel;
  file >> kernel;
  if (kernel.empty()) kernel = machine.hostname;
  const int quota = machine.quota > 0 ? std::max(1, int(std::ceil(machine.quota))) : 0;
  return fmt::format("{} {} {}", quota, kernel, to_text(allowed_processors()));
}

Said said_in(const std::string& text) {
  std::istringstream words(text);
  Said said;
  std::string processors;
  words >> said.quota >> said.kernel >> processors;
  said.processors = processors_of(processors);
  return said;
}

// Returns the usable processors. A quota counts as shared by all processes of the host, since a
// launcher puts them into one container.
int most_of(const std::set<int>& processors, int quota) {
  const int most = std::max(1, int(processors.size()));
  return quota > 0 ? std::min(most, quota) : most;
}

struct MachineOfJob {
  int ranks = 0;
  std::set<int> processors = {};
  std::map<int, std::pair<std::set<int>, int>> hosts = {};  // their processors and quotas
};
using MachinesOfJob = std::map<std::string, MachineOfJob>;  // by kernel

MachinesOfJob machines_of(const JobRanks& ranks, const std::vector<Said>& all) {
  MachinesOfJob machines;
  for (std::size_t rank = 0; rank < ranks.process.size(); ++rank) {
    const Said& said = all[std::size_t(ranks.process[rank])];
    MachineOfJob& machine = machines[said.kernel];
    auto& [processors, quota] = machine.hosts[ranks.host[rank]];
    ++machine.ranks;
    machine.processors.insert(said.processors.begin(), said.processors.end());
    processors.insert(said.processors.begin(), said.processors.end());
    quota = said.quota;
  }
  return machines;
}

bool enough_everywhere(const MachinesOfJob& machines) {
  return std::all_of(machines.begin(), machines.end(), [](const auto& named) {
    const MachineOfJob& machine = named.second;
    int of_hosts = 0;
    for (const auto& [host, share] : machine.hosts) of_hosts += most_of(share.first, share.second);
    return machine.ranks <= std::min(most_of(machine.processors, 0), of_hosts);
  });
}

int most_hosts(const MachinesOfJob& machines) {
  std::size_t most = 1;
  for (const auto& [kernel, machine] : machines) most = std::max(most, machine.hosts.size());
  return int(most);
}

}  // namespace

RankProcessors processors_of_ranks(const JobRanks& ranks, const std::string& what, int threads) {
  const Machine computer = machine();
  std::vector<Said> all;
  for (const std::string& text : ranks.bootstrap.all_gather(mine(computer), what))
    all.push_back(said_in(text));
  const std::size_t me = std::size_t(ranks.bootstrap.process());
  const std::vector<int> local = ranks.local();
  std::vector<HostProcess> here;
  std::set<int> together;
  std::size_t place = 0;
  for (std::size_t process = 0; process < all.size(); ++process) {
    const auto replicas = std::count_if(local.begin(), local.end(), [&](int rank) {
      return ranks.process[std::size_t(rank)] == int(process);
    });
    if (replicas == 0) continue;
    if (process == me) place = here.size();
    here.push_back({all[process].processors, int(replicas)});
    together.insert(here.back().processors.begin(), here.back().processors.end());
  }
  const MachinesOfJob machines = machines_of(ranks, all);
  return {plan_binding(here, place, processor_map(), threads, computer.cores),
          most_of(together, all[me].quota), enough_everywhere(machines), most_hosts(machines)};
}

}  // namespace lockstep::collectives
