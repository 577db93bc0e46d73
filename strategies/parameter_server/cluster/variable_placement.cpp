// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/cluster/variable_placement.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "engine/base/error.h"
#include "engine/base/hash.h"

namespace lockstep::strategies {
namespace {

using engine::require;

std::string servers_text(std::size_t servers) {
  return servers == 1 ? "the only server is /job:ps/task:0"
                      : fmt::format("servers are /job:ps/task:0 to /job:ps/task:{}", servers - 1);
}

// Returns the server that `name` means, or nothing if it has neither job nor task. `who`: the
// origin of the name, for errors.
std::optional<std::size_t> server_of(const TaskName& name, const VarInfo& variable,
                                     std::string_view who, std::size_t servers) {
  require(!name.device || *name.device == engine::DeviceId{"cpu", 0},
          "{} puts variable {} on {}: servers keep variables in memory, which is cpu:0", who,
          variable.name, to_string(name));
  if (name.job.empty() && !name.task) return std::nullopt;
  const std::size_t task = std::size_t(*with_defaults(name).task);
  require((name.job.empty() || name.job == "ps") && task < servers,
          "{} puts variable {} on {}, which is no server: {}", who, variable.name, to_string(name),
          servers_text(servers));
  return task;
}

// Assigns shards in order: earlier assignments influence later ones.
class ShardAssigner {
 public:
  ShardAssigner(const PlacementRules& rules, std::size_t servers)
      : rules_(rules), numbers_(servers), bytes_(servers) {}

  const std::vector<std::size_t>& bytes() const { return bytes_; }

  // Returns the server to which the variable is pinned, or nothing.
  std::optional<std::size_t> pinned(const VarInfo& variable) const {
    const auto pin = rules_.pins.find(variable.name);
    if (pin == rules_.pins.end()) return std::nullopt;
    return server_of(pin->second, variable, "a pin", bytes_.size());
  }

  std::size_t choose(const VarInfo& shard) {
    if (std::holds_alternative<GreedyBytes>(rules_.placer))
      return std::size_t(std::ranges::min_element(bytes_) - bytes_.begin());
    if (const auto* function = std::get_if<PlacementFunction>(&rules_.placer)) {
      require(bool(*function), "variable {} has no place: the placement function is empty",
              shard.name);
      const auto server =
          server_of((*function)(shard), shard, "the placement function", bytes_.size());
      if (server) return *server;
    }
    return next_++ % bytes_.size();
  }

  PlacedShard assign(std::size_t variable, engine::Range rows, std::size_t bytes,
                     std::size_t server) {
    bytes_[server] += bytes;
    return {variable, rows, server, numbers_[server]++, bytes};
  }

 private:
  const PlacementRules& rules_;
  std::vector<std::size_t> numbers_, bytes_;  // per server, so far
  std::size_t next_ = 0;
};

const Partitioner& partitioner_of(const PlacementRules& rules, const std::string& name) {
  const auto own = rules.partitioner_of.find(name);
  return own == rules.partitioner_of.end() ? rules.partitioner : own->second;
}

void check_names(const std::vector<VarInfo>& variables, const PlacementRules& rules) {
  std::set<std::string_view> names;
  for (const VarInfo& variable : variables) {
    require(!variable.name.empty(), "a variable of shape {} has no name",
            to_string(variable.shape));
    require(names.insert(variable.name).second, "there are two variables named {}", variable.name);
  }
  for (const auto& [name, pin] : rules.pins)
    require(names.contains(name), "{} is pinned to {}, but there is no such variable", name,
            to_string(pin));
  for (const auto& [name, partitioner] : rules.partitioner_of)
    require(names.contains(name), "{} is to be cut into shards, but there is no such variable",
            name);
}

// Returns the shard's description for a placer.
VarInfo shard_info(const VarInfo& variable, engine::Range rows, std::size_t shard,
                   std::size_t shards) {
  if (shards == 1) return variable;
  VarInfo info = variable;
  engine::Shape of_row;
  for (std::size_t axis = 1; axis < variable.shape.rank(); ++axis)
    of_row.append(variable.shape[axis]);
  info.shape = of_row.with_rows(rows.size());
  info.bytes = variable.bytes / rows_of(variable.shape) * rows.size();
  info.shard = shard;
  info.shards = shards;
  return info;
}

}  // namespace

VariablePlacement place_variables(std::vector<VarInfo> variables, std::size_t servers,
                                  const PlacementRules& rules) {
  require(servers > 0, "variables need at least one server");
  check_names(variables, rules);
  VariablePlacement placement;
  ShardAssigner assigner(rules, servers);
  for (std::size_t v = 0; v < variables.size(); ++v) {
    const VarInfo& variable = variables[v];
    const std::optional<std::size_t> pin = assigner.pinned(variable);
    const Partitioner& partitioner =
        pin ? Partitioner(WholeVariables{}) : partitioner_of(rules, variable.name);
    const std::size_t shards = shards_of(partitioner, variable, servers);
    const std::vector<engine::Range> cuts = cut_rows(rows_of(variable.shape), shards);
    for (std::size_t s = 0; s < shards; ++s) {
      const VarInfo shard = shard_info(variable, cuts[s], s, shards);
      const std::size_t server = pin ? *pin : assigner.choose(shard);
      placement.shards.push_back(assigner.assign(v, cuts[s], shard.bytes, server));
    }
  }
  placement.variables = std::move(variables);
  placement.server_bytes = assigner.bytes();
  return placement;
}

std::string placement_table(const VariablePlacement& placement) {
  using Row = std::array<std::string, 5>;
  std::vector<Row> rows{{"variable", "shape", "rows", "bytes", "server"}};
  for (const PlacedShard& shard : placement.shards) {
    const VarInfo& variable = placement.variables[shard.variable];
    rows.push_back({variable.name, to_string(variable.shape),
                    fmt::format("{}-{}", shard.rows.begin, shard.rows.end - 1),
                    fmt::format("{}", shard.bytes), fmt::format("{}", shard.server)});
  }
  std::array<std::size_t, 5> widths{};
  for (const Row& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string text;
  for (const Row& row : rows)
    text += fmt::format("{:<{}}  {:<{}}  {:>{}}  {:>{}}  {:>{}}\n", row[0], widths[0], row[1],
                        widths[1], row[2], widths[2], row[3], widths[3], row[4], widths[4]);
  text += "bytes of each server:";
  for (std::size_t s = 0; s < placement.server_bytes.size(); ++s)
    text += fmt::format("{} {}: {}", s == 0 ? "" : ",", s, placement.server_bytes[s]);
  return text;
}

std::string describe(const VariablePlacement& placement) {
  std::string text = fmt::format("{} variables on {} servers\n", placement.variables.size(),
                                 placement.server_bytes.size());
  for (const PlacedShard& shard : placement.shards) {
    const VarInfo& variable = placement.variables[shard.variable];
    text += fmt::format("{} {} {}, {} bytes{}{}{}: rows {}-{} on server {}\n", shard.variable,
                        variable.name, to_string(variable.shape), variable.bytes,
                        variable.trainable ? "" : ", frozen", variable.sparse ? ", sparse" : "",
                        variable.decays ? "" : ", no decay", shard.rows.begin, shard.rows.end - 1,
                        shard.server);
  }
  return text;
}

std::uint64_t hash_of(const VariablePlacement& placement) {
  return engine::hash(describe(placement));
}

}  // namespace lockstep::strategies
