// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/cluster/cluster.h"

#include <array>
#include <map>

#include "engine/base/error.h"
#include "engine/base/hash.h"
#include "engine/base/quantity.h"
#include "strategies/parameter_server/rpc/host_port.h"

namespace lockstep::strategies {
namespace {

using engine::require;

constexpr std::array<std::string_view, 4> kJobNames{"chief", "worker", "ps", "evaluator"};

ClusterTask worker(std::size_t number) {
  return {number == 0 ? Role::kChief : Role::kWorker, number};
}

std::vector<ClusterTask> tasks(const ClusterSpec& spec) {
  std::vector<ClusterTask> all;
  for (std::size_t w = 0; w < spec.workers.size(); ++w) all.push_back(worker(w));
  for (std::size_t s = 0; s < spec.servers.size(); ++s) all.push_back({Role::kServer, s});
  return all;
}

}  // namespace

std::string_view name(Role role) {
  return kJobNames[std::size_t(role)];
}

TaskName task_name(const ClusterSpec& spec, const ClusterTask& task) {
  const bool leads = task.role == Role::kChief && !spec.chief_job;
  const bool shifted = task.role == Role::kWorker && spec.chief_job;
  return {std::string(name(leads ? Role::kWorker : task.role)),
          int(task.number) - (shifted ? 1 : 0)};
}

std::string address_of(const ClusterSpec& spec, const ClusterTask& task) {
  if (task.role == Role::kEvaluator) return {};
  return (task.role == Role::kServer ? spec.servers : spec.workers).at(task.number);
}

std::string to_string(const ClusterSpec& spec) {
  std::string text;
  for (const ClusterTask& task : tasks(spec))
    text += fmt::format("{} {}\n", to_string(task_name(spec, task)), address_of(spec, task));
  return text;
}

std::uint64_t hash_of(const ClusterSpec& spec) {
  return engine::hash(to_string(spec));
}

ClusterSpec checked(ClusterSpec spec, std::string_view source) {
  require(!spec.workers.empty(),
          "{}: nobody trains: there must be at least one task in job \"worker\", or a \"chief\"",
          source);
  std::map<std::string, std::string> owners;  // by address
  for (const ClusterTask& task : tasks(spec)) {
    std::vector<std::string>& list = task.role == Role::kServer ? spec.servers : spec.workers;
    std::string& address = list[task.number];
    const std::string owner = to_string(task_name(spec, task));
    try {
      address = to_string(parse_host_port(address));
    } catch (const engine::Error& error) {
      engine::fail(error.code(), "{}: {}: {}", source, owner, error.what());
    }
    const auto [other, added] = owners.emplace(address, owner);
    require(added, "{}: {} and {} have the same address {}: each task needs one of its own", source,
            other->second, owner, address);
  }
  return spec;
}

ClusterTask role_of_rank(int rank, int size, int servers) {
  require(servers >= 1, engine::Option::kServers,
          "{} servers were asked for: a parameter server strategy needs at least 1", servers);
  require(servers < size, engine::Option::kServers,
          "beside {} of {} none is left to train: start at least {}, or ask for fewer servers",
          engine::count_text(std::uint64_t(servers), "server"),
          engine::count_text(std::uint64_t(size), "rank"), servers + 1);
  require(rank >= 0 && rank < size, "there is no rank {} of {} ranks", rank, size);
  const int workers = size - servers;
  if (rank < workers) return worker(std::size_t(rank));
  return {Role::kServer, std::size_t(rank - workers)};
}

ClusterSpec cluster_of_ranks(std::span<const std::string> addresses, int servers) {
  ClusterSpec spec;
  const int size = int(addresses.size());
  for (int rank = 0; rank < size; ++rank) {
    const bool serves = role_of_rank(rank, size, servers).role == Role::kServer;
    (serves ? spec.servers : spec.workers).push_back(addresses[std::size_t(rank)]);
  }
  return checked(std::move(spec), "the addresses of the launcher's ranks");
}

}  // namespace lockstep::strategies
