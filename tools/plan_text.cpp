// SPDX-License-Identifier: MIT
#include "tools/plan_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "collectives/cost/memory_access.h"
#include "collectives/cost/size_rules.h"
#include "collectives/topology/ring_order.h"
#include "engine/base/quantity.h"

namespace lockstep::tools {
namespace {

using collectives::Choice;
using collectives::Choices;
using collectives::HostCosts;
using collectives::LinkClass;
using collectives::size_text;
using collectives::time_text;
using collectives::Topology;
using nlohmann::json;

std::string rate_text(double bytes_per_second) {
  const double rate = bytes_per_second / 1e9;
  return rate < 100 ? fmt::format("{:.3g} GB/s", rate) : fmt::format("{:.0f} GB/s", rate);
}

std::vector<int> ranks_by_host(const Topology& topology) {
  std::vector<int> ranks(topology.hosts.size());
  for (const Topology::Rank& rank : topology.ranks) ++ranks[std::size_t(rank.host)];
  return ranks;
}

// Returns the number of ranks of a host on each of its NUMA nodes; empty for a single node.
std::string nodes_text(const Topology& topology, int host) {
  if (topology.hosts[std::size_t(host)].numa_nodes < 2) return {};
  std::map<int, int> ranks;
  int of_several = 0;
  for (const Topology::Rank& rank : topology.ranks)
    if (rank.host == host) ++(rank.numa_node ? ranks[*rank.numa_node] : of_several);
  std::vector<std::string> parts;
  for (const auto& [node, count] : ranks)
    parts.push_back(fmt::format("{} on node {}", count, node));
  if (of_several > 0) parts.push_back(fmt::format("{} on any node", of_several));
  return fmt::format(" of {} NUMA nodes ({})", topology.hosts[std::size_t(host)].numa_nodes,
                     fmt::join(parts, ", "));
}

std::string host_text(const Topology& topology, int host, int ranks) {
  const HostCosts& costs = topology.hosts[std::size_t(host)].costs;
  const auto &near = costs.passes.front(), &far = costs.passes.back();
  std::string text = engine::count_text(std::uint64_t(ranks), "rank");
  if (costs.link == LinkClass::kMemory) {
    const int cores = topology.cores_of_host(host);
    text += fmt::format(" on {}{}; memory {} with one processor and {} with all",
                        engine::count_text(std::uint64_t(cores), "processor"),
                        nodes_text(topology, host), rate_text(far.core), rate_text(far.host));
    if (costs.passes.size() > 1)
      text += fmt::format(", {} with one in its cache", rate_text(near.core));
    if ((costs.stream_touched > 0 && costs.stream_results > 0) || costs.read_ahead)
      text += "; non-temporal stores: " + sentence(collectives::memory_access(costs));
  } else {
    text += fmt::format(" on devices; memory {} each", rate_text(far.core));
    double least = 0, most = 0;
    for (const auto& link : costs.links) {
      least = least == 0 ? link.bandwidth : std::min(least, link.bandwidth);
      most = std::max(most, link.bandwidth);
    }
    const bool mixed = !costs.links.empty();
    const std::string kind(name(costs.link));
    if (mixed)
      text += fmt::format(
          "; {} direct {} links of {}", costs.links.size(), kind,
          least == most ? rate_text(most) : rate_text(least) + " to " + rate_text(most));
    if (costs.port > 0)
      text += fmt::format("; {} a device through {}", rate_text(costs.port),
                          mixed ? "PCI Express for the others" : "its " + kind + " switch");
  }
  return text + fmt::format("; a signal takes {}", time_text(costs.signal));
}

// Returns a line per group of adjacent equal hosts.
std::string hosts_text(const Topology& topology) {
  const std::vector<int> ranks = ranks_by_host(topology);
  std::string text;
  for (std::size_t first = 0; first < topology.hosts.size();) {
    std::size_t last = first;
    const std::string what = host_text(topology, int(first), ranks[first]);
    while (last + 1 < topology.hosts.size() &&
           host_text(topology, int(last + 1), ranks[last + 1]) == what)
      ++last;
    const std::string& name = topology.hosts[first].name;
    text += fmt::format("  {}: {}\n",
                        first == last ? name : name + " .. " + topology.hosts[last].name, what);
    first = last + 1;
  }
  return text;
}

// Returns the order of a ring through the first host; empty if it is the order of the ranks.
std::string ring_text(const Topology& topology) {
  const Topology host = topology.first_hosts(1);
  std::vector<int> order = ring_order(topology);
  order.resize(host.ranks.size());
  if (std::is_sorted(order.begin(), order.end())) return {};
  return fmt::format("  a ring goes along the strongest links of {}: ranks {}\n",
                     host.hosts[0].name, fmt::join(order, " "));
}

// Returns whether the choice is slower than the runner-up, as a tie or by the user's wish.
bool is_slower(const Choice& choice) {
  return !choice.runner_up.empty() && choice.runner_up_seconds < choice.seconds;
}

std::string choice_line(const Choice& choice, bool reduced, bool explained) {
  const std::string other =
      choice.runner_up.empty()
          ? "-"
          : fmt::format("{} {}", choice.runner_up, time_text(choice.runner_up_seconds));
  std::string line = fmt::format("{:>10}  {:<20} {}{:>9}  ", size_text(choice.bytes),
                                 choice.algorithm, reduced ? "~" : " ", time_text(choice.seconds));
  line += explained ? fmt::format("{:<30} {}", other, choice.reason) : other;
  return line + "\n";
}

}  // namespace

std::string same_plans(const Choices& choices) {
  std::vector<std::pair<std::string, std::vector<std::string>>> lines;  // end of a line, names
  for (std::size_t a = 0; a < choices.algorithms().size(); ++a) {
    const std::size_t largest = choices.sizes().size() - 1;
    std::size_t first = largest;  // first size with the same plan
    const std::string same = choices.same(largest, a);
    if (same.empty()) continue;
    while (first > 0 && choices.same(first - 1, a) == same) --first;
    std::string end = "the same plan as " + same;
    if (first > 0)
      end += fmt::format(", of these sizes from {} on", size_text(choices.sizes()[first]));
    auto line = std::find_if(lines.begin(), lines.end(), [&](auto& l) { return l.first == end; });
    if (line == lines.end()) line = lines.insert(lines.end(), {std::move(end), {}});
    line->second.push_back(choices.algorithms()[a]);
  }
  std::string text;
  for (const auto& [end, names] : lines)
    text += fmt::format("{}{} {} {}", text.empty() ? "" : "\n", fmt::join(names, ", "),
                        names.size() == 1 ? "makes" : "make", end);
  return text;
}

namespace {

json json_of(const Choice& choice) {
  json object = {{"bytes", choice.bytes},
                 {"algorithm", choice.algorithm},
                 {"predicted_us", choice.seconds * 1e6},
                 {"reason", choice.reason},
                 {"asked", choice.asked},
                 {"runner_up", nullptr},
                 {"runner_up_us", nullptr}};
  if (choice.runner_up.empty()) return object;
  object["runner_up"] = choice.runner_up;
  object["runner_up_us"] = choice.runner_up_seconds * 1e6;
  return object;
}

// Returns "costs measured"; a job on one host may have timed all-reduces alone.
std::string costs_text(const Topology& topology) {
  return topology.costs_are == "assumed" && !topology.trials.empty()
             ? "all-reduces timed"
             : "costs " + topology.costs_are;
}

// Returns " in 210 ms, planned in 20 ms" or " before (2026-11-28 23:40, read in 3 ms), ..."; empty
// if nothing was measured.
std::string how(const PlanSource& source) {
  if (!source.seconds) return {};
  const std::string took = time_text(*source.seconds);
  return fmt::format(" {}, planned in {}",
                     source.stored ? fmt::format("before ({}{}read in {})", source.written,
                                                 source.written.empty() ? "" : ", ", took)
                                   : "in " + took,
                     time_text(source.planning_seconds));
}

std::size_t place_of(const Choices& choices, const std::string& algorithm) {
  const auto& names = choices.algorithms();
  return std::size_t(std::find(names.begin(), names.end(), algorithm) - names.begin());
}

// Returns a line for each size, and the notes about the sizes. Reasons stand where the choice
// changes.
std::string table_text(const Choices& choices) {
  std::string text = fmt::format("\n{:>10}  {:<20}  {:>9}  {:<30} {}\n", "all-reduce", "algorithm",
                                 "predicted", "runner-up", "because (where the choice changes)");
  bool any_reduced = false;
  const std::vector<Choice> table = choices.table();
  for (std::size_t i = 0; i < table.size(); ++i) {
    const bool reduced = choices.price(i, place_of(choices, table[i].algorithm)).reduced;
    any_reduced |= reduced;
    text +=
        choice_line(table[i], reduced,
                    i == 0 || table[i].algorithm != table[i - 1].algorithm || is_slower(table[i]));
  }
  if (any_reduced)
    text += "\n~ from plans of up to 8 of the hosts, since the whole one has too many steps\n";
  for (const auto& refusal : choices.refused())
    text += fmt::format("\n{} {}", refusal.algorithm, refusal.why);
  const std::string same = same_plans(choices);
  if (!same.empty()) text += "\n" + same;
  if (text.back() != '\n') text += "\n";
  return text;
}

// Returns a hint for users that expected a table.
std::string one_rank_text() {
  return "\none rank has nothing to reduce: --replicas 2 plans for two of this process, mpirun -n "
         "2 "
         "lockstep plan for two processes, --topology 4x2 for a cluster\n";
}

}  // namespace

std::string plan_text(const PlanSource& source, const Topology& topology, const Choices& choices,
                      const PlannedModel* model) {
  const auto count = [](std::size_t n, const char* one) { return engine::count_text(n, one); };
  std::string text =
      fmt::format("{}: {} on {}, {}{}\n", source.name, count(topology.ranks.size(), "rank"),
                  count(topology.hosts.size(), "host"), costs_text(topology), how(source));
  text += hosts_text(topology);
  text += ring_text(topology);
  if (topology.hosts.size() > 1) {
    const auto& wire = topology.wire;
    text += fmt::format(
        "  between hosts: {} each way, {} to arrive; of the rank's thread {} a "
        "message and {:.2g} ns a byte\n",
        rate_text(wire.bandwidth), time_text(wire.latency), time_text(wire.message),
        wire.processor * 1e9);
  }
  text += topology.ranks.size() == 1 ? one_rank_text() : table_text(choices);
  if (model != nullptr) {
    text += fmt::format("\n{} in {}{}:\n", model->name, count(model->buckets.size(), "bucket"),
                        model->update == "fused" ? ", each with its update" : "");
    for (std::size_t b = 0; b < model->buckets.size(); ++b) {
      const PlannedBucket& bucket = model->buckets[b];
      text += fmt::format("  bucket {:<3} [{}, {})  {}  {}  {}\n", b, bucket.range.begin,
                          bucket.range.end, engine::bytes_text(double(bucket.choice.bytes)),
                          bucket.choice.algorithm, time_text(bucket.choice.seconds));
    }
    double seconds = 0;
    for (const PlannedBucket& bucket : model->buckets) seconds += bucket.choice.seconds;
    text += fmt::format("  one after the other: {}\n  update by {}: {}, because {}\n",
                        time_text(seconds), model->optimizer, model->update, model->update_reason);
  }
  return text;
}

std::string plan_json(const PlanSource& source, const Topology& topology, const Choices& choices,
                      const PlannedModel* model) {
  json table = json::array();
  const std::vector<Choice> rows = choices.table();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    json row = json_of(rows[i]);
    row["same_plan"] = json::object();
    for (std::size_t a = 0; a < choices.algorithms().size(); ++a) {
      const auto& price = choices.price(i, a);
      row["predicted_of_all_us"][choices.algorithms()[a]] = price.seconds * 1e6;
      if (choices.algorithms()[a] == rows[i].algorithm) row["reduced"] = price.reduced;
      const std::string same = choices.same(i, a);
      if (!same.empty()) row["same_plan"][choices.algorithms()[a]] = same;
    }
    table.push_back(std::move(row));
  }
  json refused = json::object();
  for (const auto& refusal : choices.refused()) refused[refusal.algorithm] = refusal.why;
  json object = {{"source", source.name},
                 {"calibration_seconds", nullptr},
                 {"calibration_stored", source.stored},
                 {"planning_seconds", source.planning_seconds},
                 {"topology", json::parse(to_json(topology))},
                 {"table", table},
                 {"refused", refused},
                 {"hash", fmt::format("{:016x}", choices.hash())}};
  if (source.seconds) object["calibration_seconds"] = *source.seconds;
  if (model != nullptr) {
    json buckets = json::array();
    for (const PlannedBucket& bucket : model->buckets) {
      json entry = json_of(bucket.choice);
      entry["begin"] = bucket.range.begin;
      entry["end"] = bucket.range.end;
      buckets.push_back(std::move(entry));
    }
    object["model"] = model->name;
    object["buckets"] = buckets;
    object["optimizer"] = model->optimizer;
    object["update"] = model->update;
    object["update_reason"] = model->update_reason;
  }
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace lockstep::tools
