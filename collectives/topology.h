// SPDX-License-Identifier: MIT
// Where everything is: a plain value, the same on all processes. Ranks are replicas, numbered
// process by process: process 0's first. Found through the bootstrap once, when a strategy is made.
#pragma once
#include <string>
#include <vector>

#include "collectives/bootstrap.h"

namespace lockstep::collectives {

struct Topology {
  struct Process {
    int host = 0;  // from 0, in order of first appearance
    int pid = 0;
    int first_rank = 0, replicas = 1;  // ranks first_rank .. first_rank + replicas - 1
    std::vector<std::string> devices;  // of each replica: "cpu:0"
    int cores = 1;                     // that this process may use
  };
  std::vector<Process> processes;
  std::vector<std::string> hosts;  // their names

  int ranks() const;
  std::vector<int> host_of_rank() const;
  std::string describe() const;  // "4 replicas in 2 processes on 1 host (alpha)"
};

// Collective. `devices`: one entry a replica of this process. Throws the bootstrap's errors.
Topology discover(Bootstrap& bootstrap, const std::vector<std::string>& devices);

// As JSON, indented, and back; throws Error(kInvalid) naming the field that is missing or wrong.
std::string to_json(const Topology& topology);
Topology topology_from_json(const std::string& text);

}  // namespace lockstep::collectives
