// SPDX-License-Identifier: MIT
// Finds the processes of a job that share a host. Two processes share one if one of them can map
// the other's memory, as lockstep does for its own data. Boot, user and namespace of processes only
// select the candidates. Collective: all processes make the same exchanges.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace lockstep::collectives {

// Exchanges a text per process, by process, as Bootstrap::all_gather does.
using TextExchange =
    std::function<std::vector<std::string>(const std::string& mine, const std::string& what)>;

// Returns the host of each process. Hosts are numbered from 0 in order of first appearance. A
// process that cannot map the memory of its neighbors counts as a host of its own.
std::vector<int> shared_hosts(int process, const TextExchange& all_gather);

}  // namespace lockstep::collectives
