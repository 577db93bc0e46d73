// SPDX-License-Identifier: MIT
#include "tools/topology_choice.h"

#include <filesystem>

#include "collectives/topology/example_topologies.h"
#include "engine/base/error.h"
#include "engine/base/plain_file.h"

namespace lockstep::tools {
namespace {

namespace fs = std::filesystem;
using collectives::Topology;

constexpr std::size_t kMostTopology = std::size_t(16) << 20;  // bytes of a topology file

std::string read_topology(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    engine::fail(
        engine::Code::kIo,
        "there is no file {}, and no example of that name; examples are: {}, and any other "
        "HOSTSxRANKS",
        path, example_names(", "));
  }
  return engine::read_text(path, path, kMostTopology);
}

}  // namespace

std::string example_names(const char* between) {
  std::string text;
  for (const auto& example : collectives::example_topologies())
    text += fmt::format("{}{}", text.empty() ? "" : between, example.name);
  return text;
}

std::string topology_help(const std::string& what) {
  std::string names = what + ": a JSON file, or an example:";
  for (const auto& example : collectives::example_topologies())
    names += fmt::format(" {} ({});", example.name, example.about);
  return names +
         fmt::format(
             " any other HOSTSxRANKS of at most {} hosts, {} ranks per host and {} ranks in all "
             "(servers over 25 Gbit/s Ethernet)",
             collectives::kMostExampleHosts, collectives::kMostExampleRanksOfAHost,
             collectives::kMostExampleRanks);
}

Topology described_topology(const std::string& name) {
  if (collectives::names_example(name)) return collectives::example_topology(name);
  const std::string text = read_topology(name);
  try {
    Topology topology = collectives::topology_from_json(text);
    engine::require(!topology.ranks.empty(), "it has no ranks");
    return topology;
  } catch (const engine::Error& error) {
    engine::fail(error.code(), "{}: {}", name, error.what());
  }
}

}  // namespace lockstep::tools
