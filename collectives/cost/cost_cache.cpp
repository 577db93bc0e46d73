// SPDX-License-Identifier: MIT
#include "collectives/cost/cost_cache.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "collectives/bootstrap/bootstrap.h"
#include "collectives/topology/json_reading.h"
#include "engine/base/error.h"
#include "engine/base/hash.h"
#include "engine/base/plain_file.h"

namespace lockstep::collectives {
namespace {

namespace fs = std::filesystem;
using engine::Code;
using engine::require;
using nlohmann::json;

// Returns a unique suffix. Containers with one home may have the same process ids, and even host
// names.
std::string partial_suffix() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  std::random_device random;
  return fmt::format(".{}.{}.{:08x}{:08x}.partial", host.data(), getpid(), random(), random());
}

std::string checksum(const std::string& topology) {
  return fmt::format("{:016x}", engine::hash(topology));
}

}  // namespace

fs::path cache_folder() {
  const auto of = [](const char* variable, const char* below) {
    const char* value = std::getenv(variable);
    const fs::path path = value == nullptr ? "" : value;
    return path.is_absolute() ? path / below : fs::path();
  };
  const fs::path given = of("XDG_CACHE_HOME", "lockstep");
  return given.empty() ? of("HOME", ".cache/lockstep") : given;
}

std::string fingerprint(const Topology& topology, const std::string& other) {
  std::string text = other + "\n";
  for (const Topology::Host& host : topology.hosts)
    text += fmt::format("host {}: {}, {} NUMA nodes\n", host.name, host.cpu, host.numa_nodes);
  for (const Topology::Process& process : topology.processes)
    text += fmt::format("process on host {}: {} processors, {} ranks\n", process.host,
                        process.cores, process.replicas);
  for (const Topology::Rank& rank : topology.ranks)
    text += rank.device + (rank.numa_node ? fmt::format("@{} ", *rank.numa_node) : " ");
  return text;
}

fs::path CostCache::file(const std::string& fingerprint) const {
  return folder_ / fmt::format("costs-{:016x}.json", engine::hash(fingerprint));
}

std::optional<std::string> CostCache::read(const std::string& fingerprint) const {
  try {
    return engine::read_text(file(fingerprint).string(), "it", Bootstrap::kMostBytes);
  } catch (const engine::Error&) {
    return std::nullopt;
  }
}

std::string CostCache::written(const std::string& fingerprint) const {
  struct stat found {};
  tm local{};
  char text[sizeof "2026-11-28 23:40"];
  if (stat(file(fingerprint).c_str(), &found) != 0 ||
      localtime_r(&found.st_mtime, &local) == nullptr ||
      std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local) == 0)
    return {};
  return text;
}

void CostCache::write(const std::string& fingerprint, const Topology& topology) const {
  const std::string costs = to_json(topology);
  const json all = {
      {"fingerprint", fingerprint}, {"topology", costs}, {"checksum", checksum(costs)}};
  const fs::path name = file(fingerprint);
  const fs::path partial = name.string() + partial_suffix();
  std::error_code error;
  fs::create_directories(folder_, error);
  std::ofstream out(partial, std::ios::binary);
  out << all.dump(2, ' ', false, json::error_handler_t::replace) << '\n';
  out.close();
  if (out) fs::rename(partial, name, error);
  if (out && !error) return;
  fs::remove(partial, error);
  engine::fail(Code::kIo, "{} cannot be written", name.string());
}

Topology costs_from(const std::string& text, const std::string& fingerprint, Topology topology) {
  return json_reading::reading("stored costs", [&] {
    const json all = json_reading::parse(text, "the text");
    json_reading::only(all, "a file of costs", {"fingerprint", "topology", "checksum"});
    const auto costs = all.at("topology").get<std::string>();
    require(all.at("checksum").get<std::string>() == checksum(costs), "the checksum is another");
    require(all.at("fingerprint").get<std::string>() == fingerprint,
            "they were measured by something else or on something else");
    const Topology stored = topology_from_json(costs);
    require(stored.hosts.size() == topology.hosts.size() && stored.ranks == topology.ranks,
            "they are of other ranks");
    for (std::size_t host = 0; host < topology.hosts.size(); ++host)
      topology.hosts[host].costs = stored.hosts[host].costs;
    topology.wire = stored.wire;
    topology.trials = stored.trials;
    topology.costs_are = stored.costs_are;
    return topology;
  });
}

}  // namespace lockstep::collectives
