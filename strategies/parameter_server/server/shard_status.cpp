// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/server/shard_status.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <span>

namespace lockstep::strategies {
namespace {

constexpr std::size_t kMostContainers = 1000;  // limit of described containers

nlohmann::json job_json(const TrainingShards& job) {
  const TrainingShards::Status status = job.status();
  const ShardCounts& counts = status.counts;
  nlohmann::json workers = nlohmann::json::array();
  std::uint64_t lost = 0;
  const auto now = engine::Clock::now();
  for (const TrainingShards::WorkerStatus& worker : status.workers) {
    nlohmann::json since;
    if (worker.at) since = std::chrono::duration<double>(now - *worker.at).count();
    workers.push_back({{"last", worker.last}, {"lost", worker.lost}, {"seconds_since", since}});
    lost += worker.lost;
  }
  nlohmann::json shards = nlohmann::json::array();
  for (const ShardSpec& shard : job.spec().shards) {
    shards.push_back({{"name", shard.name},
                      {"first_row", shard.first_row},
                      {"rows", shard.rows},
                      {"bytes", shard.bytes(job.spec().rule)}});
  }
  const double mean = counts.steps == 0 ? 0 : double(counts.staleness_sum) / double(counts.steps);
  return {{"generation", status.generation},
          {"version", status.version},
          {"ready", status.ready},
          {"shards", shards},
          {"synchronous", job.spec().policy.synchronous},
          {"waiting_calls", status.waiting_calls},
          {"waiting_parts", status.waiting_parts},
          {"pushes",
           {{"applied", counts.applied},
            {"kept", counts.kept},
            {"late", counts.late},
            {"too_stale", counts.too_stale},
            {"repeated", counts.repeated},
            {"lost", lost}}},
          {"pulls", counts.pulls},
          {"bytes_pushed", counts.bytes_pushed},
          {"bytes_pulled", counts.bytes_pulled},
          {"rows_pushed", counts.rows_pushed},
          {"rows_pulled", counts.rows_pulled},
          {"staleness",
           {{"steps", counts.steps},
            {"mean", mean},
            {"most", counts.staleness_most},
            {"histogram", counts.staleness}}},
          {"workers", workers}};
}

}  // namespace

std::string status_json(const ShardStore& store) {
  nlohmann::json containers = nlohmann::json::array();
  const auto there = store.containers();
  for (const ShardStore::ContainerState& container :
       std::span(there).first(std::min(there.size(), kMostContainers))) {
    nlohmann::json& here = containers.emplace_back(nlohmann::json{
        {"name", container.name}, {"variables", container.variables}, {"bytes", container.bytes}});
    if (container.job) here["job"] = job_json(*container.job);
  }
  nlohmann::json all{{"containers", containers}};
  if (there.size() > kMostContainers) all["more_containers"] = there.size() - kMostContainers;
  return all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace lockstep::strategies
