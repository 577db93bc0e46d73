// SPDX-License-Identifier: MIT
// All tasks of a job: workers, parameter servers, and their addresses. The cluster must be the same
// on every task. Workers send `to_string` to the chief when they attach; if it differs from the
// chief's, the error shows both (text_difference.h). The chief tells the servers what they keep.
// Sources: the ranks of a launcher (here) and TF_CONFIG (tf_config.h). Plain values and pure
// functions; thread-safe.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/parameter_server/cluster/task_name.h"

namespace lockstep::strategies {

// The chief is a worker that also leads. Evaluators are not part of the cluster: no task waits for
// them.
enum class Role : std::uint8_t { kChief, kWorker, kServer, kEvaluator };
std::string_view name(Role role);  // names of jobs: "chief", "worker", "ps", "evaluator"

struct ClusterTask {
  Role role = Role::kChief;
  // Numbers count from 0 in each role; workers include the chief, which is 0.
  std::size_t number = 0;
  bool operator==(const ClusterTask&) const = default;
};

struct ClusterSpec {
  std::vector<std::string> workers = {};  // HOST:PORT of each worker, the chief first
  std::vector<std::string> servers = {};
  // True: the chief is /job:chief/task:0 and the next worker is /job:worker/task:0. False: the
  // chief is /job:worker/task:0.
  bool chief_job = false;
  bool operator==(const ClusterSpec&) const = default;
};

// Returns e.g. "/job:ps/task:1".
TaskName task_name(const ClusterSpec& spec, const ClusterTask& task);
// Returns the address on which the task listens; empty for an evaluator.
std::string address_of(const ClusterSpec& spec, const ClusterTask& task);

// Returns one line per task with its name and address. Equal texts mean equal clusters.
std::string to_string(const ClusterSpec& spec);
std::uint64_t hash_of(const ClusterSpec& spec);

// Returns the cluster with every address in parse_host_port's form. Throws Error(kInvalid) if an
// address is invalid, if two tasks have the same address, or if there is no worker. The error is
// one line that begins with `source`.
ClusterSpec checked(ClusterSpec spec, std::string_view source);

// Returns the role of rank `rank` of `size`. Rank 0 is the chief; the last `servers` ranks are
// servers. Throws Error(kInvalid) if no server or no worker is left.
ClusterTask role_of_rank(int rank, int size, int servers);
// Returns the cluster of these ranks. `addresses`: one per rank. Throws like role_of_rank and
// checked.
ClusterSpec cluster_of_ranks(std::span<const std::string> addresses, int servers);

}  // namespace lockstep::strategies
