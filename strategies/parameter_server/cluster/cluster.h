// SPDX-License-Identifier: MIT
// All tasks of a job: who trains, who keeps variables, and where each listens. It must be the same
// on every task: workers send `to_string` to the chief when they attach, and where it differs from
// the chief's both are shown (text_difference.h). Servers are told by the chief what they keep.
// Sources: the ranks of a launcher (here) and TF_CONFIG (tf_config.h). Plain values and pure
// functions; any thread.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/parameter_server/cluster/task_name.h"

namespace lockstep::strategies {

// The chief is a worker that also leads. Evaluators belong to no cluster: nobody waits for them.
enum class Role : std::uint8_t { kChief, kWorker, kServer, kEvaluator };
std::string_view name(Role role);  // "chief", "worker", "ps", "evaluator", as jobs are called

struct ClusterTask {
  Role role = Role::kChief;
  std::size_t number = 0;  // of workers: 0 is the chief; of servers and evaluators: from 0
  bool operator==(const ClusterTask&) const = default;
};

struct ClusterSpec {
  std::vector<std::string> workers = {};  // HOST:PORT of all who train, the chief first
  std::vector<std::string> servers = {};
  // The chief is called /job:chief/task:0 and the next worker /job:worker/task:0; else the chief is
  // /job:worker/task:0 itself.
  bool chief_job = false;
  bool operator==(const ClusterSpec&) const = default;
};

// "/job:ps/task:1".
TaskName task_name(const ClusterSpec& spec, const ClusterTask& task);
// Where it listens; empty for an evaluator.
std::string address_of(const ClusterSpec& spec, const ClusterTask& task);

// One line a task: its name and its address. Equal texts are equal clusters.
std::string to_string(const ClusterSpec& spec);
std::uint64_t hash_of(const ClusterSpec& spec);

// The same with every address as parse_host_port writes it. Throws Error(kInvalid), one line that
// begins with `source`, where a task's address is none, where two tasks have the same one, and
// where nobody trains.
ClusterSpec checked(ClusterSpec spec, std::string_view source);

// What rank `rank` of `size` is, where the last `servers` ranks are servers: rank 0 is the chief.
// Throws Error(kInvalid) where that leaves no server or no worker.
ClusterTask role_of_rank(int rank, int size, int servers);
// The same ranks as a cluster; `addresses`: of each rank. Throws as role_of_rank and checked do.
ClusterSpec cluster_of_ranks(std::span<const std::string> addresses, int servers);

}  // namespace lockstep::strategies
