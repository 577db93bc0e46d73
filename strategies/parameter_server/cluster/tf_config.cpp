// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/cluster/tf_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/quantity.h"

namespace lockstep::strategies {
namespace {

using engine::require;
using nlohmann::json;

constexpr std::string_view kExample =
    R"(right is e.g. {"cluster":{"worker":["h1:2222","h2:2222"],"ps":["h3:2222"]},)"
    R"("task":{"type":"worker","index":0}})";

// Returns a value for one line of an error, clipped to 40 characters.
std::string brief(const json& value) {
  constexpr std::size_t kMost = 40;
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() > kMost ? text.substr(0, kMost) + "..." : text;
}

const json* find(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

const json& member(const json& object, const char* key) {
  const json* found = find(object, key);
  require(found != nullptr && found->is_object(), "TF_CONFIG: \"{}\" {}; {}", key,
          found == nullptr ? "is missing" : "must be an object, not " + brief(*found), kExample);
  return *found;
}

// Returns the addresses of a job; empty if the cluster has no such job.
std::vector<std::string> job(const json& cluster, const char* name) {
  std::vector<std::string> addresses;
  const json* found = find(cluster, name);
  if (found == nullptr) return addresses;
  require(found->is_array(),
          "TF_CONFIG: cluster's \"{}\" must be a list of addresses, [\"HOST:PORT\", ...], not {}",
          name, brief(*found));
  for (const json& address : *found) {
    require(address.is_string(),
            "TF_CONFIG: address {} of cluster's \"{}\" must be a string \"HOST:PORT\", not {}",
            addresses.size(), name, brief(address));
    addresses.push_back(address.get<std::string>());
  }
  return addresses;
}

// Returns an integer from 0 on, quoted or not.
std::optional<std::size_t> index_of(const json& value) {
  if (value.is_number_unsigned()) return value.get<std::size_t>();
  if (!value.is_string()) return std::nullopt;
  const std::string& text = value.get_ref<const std::string&>();
  std::size_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end) return std::nullopt;
  return number;
}

struct Jobs {
  std::vector<std::string> chief, worker, ps, evaluator;
};

Jobs jobs_of(const json& cluster) {
  constexpr std::array<std::string_view, 4> kJobs{"chief", "worker", "ps", "evaluator"};
  for (const auto& [name, addresses] : cluster.items())
    require(std::ranges::find(kJobs, name) != kJobs.end(),
            "TF_CONFIG: cluster has a job {}, but jobs are chief, worker, ps and evaluator",
            brief(name));
  Jobs jobs{job(cluster, "chief"), job(cluster, "worker"), job(cluster, "ps"),
            job(cluster, "evaluator")};
  require(jobs.chief.size() <= 1, "TF_CONFIG: cluster's \"chief\" must have 1 address, not {}",
          jobs.chief.size());
  return jobs;
}

ClusterTask task_from(const json& task, const Jobs& jobs) {
  const json* type = find(task, "type");
  require(type != nullptr && type->is_string(),
          "TF_CONFIG: task's \"type\" {}; it must be \"chief\", \"worker\", \"ps\" or "
          "\"evaluator\"",
          type == nullptr ? "is missing" : "is " + brief(*type));
  const json* index = find(task, "index");
  const std::optional<std::size_t> number = index ? index_of(*index) : std::nullopt;
  require(number.has_value(), "TF_CONFIG: task's \"index\" {}; it must be a whole number from 0 on",
          index == nullptr ? "is missing" : "is " + brief(*index));

  const std::string& role = type->get_ref<const std::string&>();
  const auto of = [&](const std::vector<std::string>& list) {
    require(!list.empty(), "TF_CONFIG: this task is a {}, but cluster has no job \"{}\"", role,
            role);
    require(*number < list.size(),
            "TF_CONFIG: this task is {} {}, but cluster's \"{}\" has {}: its index must "
            "be {}",
            role, *number, role, engine::count_text(list.size(), "address", "addresses"),
            list.size() == 1 ? "0" : fmt::format("from 0 to {}", list.size() - 1));
    return *number;
  };
  if (role == "chief") return {Role::kChief, of(jobs.chief)};
  if (role == "ps") return {Role::kServer, of(jobs.ps)};
  if (role == "evaluator")
    return {Role::kEvaluator, jobs.evaluator.empty() ? *number : of(jobs.evaluator)};
  require(role == "worker",
          "TF_CONFIG: task's \"type\" is {}; it must be \"chief\", \"worker\", \"ps\" or "
          "\"evaluator\"",
          brief(*type));
  const std::size_t worker = of(jobs.worker) + jobs.chief.size();
  return {worker == 0 ? Role::kChief : Role::kWorker, worker};
}

void warn_of_unknown(const json& object, std::string_view where,
                     std::initializer_list<std::string_view> known,
                     std::vector<std::string>& warnings) {
  for (const auto& [key, value] : object.items())
    if (std::ranges::find(known, key) == known.end())
      warnings.push_back(fmt::format("TF_CONFIG: {}{} is ignored", where, brief(key)));
}

// Returns whether TF_CONFIG names a cluster. An empty object does not; other keys may be a mistyped
// "cluster".
bool names_cluster(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return false;
  const json all = json::parse(text, nullptr, false);
  if (all.is_null()) return false;
  if (!all.is_object()) return true;
  const json* cluster = find(all, "cluster");
  return cluster == nullptr ? !all.empty() : !cluster->is_object() || !cluster->empty();
}

}  // namespace

const char* tf_config_of_environment() {
  const char* const text = std::getenv("TF_CONFIG");
  return text != nullptr && names_cluster(text) ? text : nullptr;
}

ClusterConfig parse_tf_config(std::string_view text, ClusterUse use) {
  const json all = json::parse(text, nullptr, false);
  require(!all.is_discarded() && all.is_object(), "TF_CONFIG is no JSON object; {}", kExample);
  const json& cluster = member(all, "cluster");
  const json& task = member(all, "task");

  ClusterConfig config;
  warn_of_unknown(all, "", {"cluster", "task", "rpc_layer", "environment"}, config.warnings);
  warn_of_unknown(task, "task's ", {"type", "index"}, config.warnings);
  const Jobs jobs = jobs_of(cluster);
  config.spec.workers = jobs.chief;
  config.spec.workers.insert(config.spec.workers.end(), jobs.worker.begin(), jobs.worker.end());
  config.spec.servers = jobs.ps;
  config.spec.chief_job = !jobs.chief.empty();
  config.spec = checked(std::move(config.spec), "TF_CONFIG");
  const std::size_t servers = config.spec.servers.size();
  if (use == ClusterUse::kParameterServer)
    require(servers > 0,
            "TF_CONFIG: cluster has no job \"ps\", and a parameter server strategy needs at least "
            "1 server: add \"ps\":[\"HOST:PORT\"], or use a strategy of all-reduce");
  if (use == ClusterUse::kAllReduce)
    require(servers == 0,
            "TF_CONFIG: cluster's \"ps\" has {}, but all-reduce uses no servers: leave "
            "\"ps\" out, or use the strategy parameter_server",
            engine::count_text(servers, "address", "addresses"));
  config.task = task_from(task, jobs);
  return config;
}

std::string tf_config(const ClusterSpec& spec, const ClusterTask& task) {
  json cluster = json::object();
  const auto first = spec.workers.begin();
  const auto second = first + (spec.chief_job ? 1 : 0);
  if (spec.chief_job) cluster["chief"] = std::vector<std::string>(first, second);
  if (second != spec.workers.end())
    cluster["worker"] = std::vector<std::string>(second, spec.workers.end());
  if (!spec.servers.empty()) cluster["ps"] = spec.servers;
  const TaskName name = task_name(spec, task);
  return json{{"cluster", cluster}, {"task", {{"type", name.job}, {"index", name.task.value()}}}}
      .dump();
}

}  // namespace lockstep::strategies
