// SPDX-License-Identifier: MIT
#include "tools/bench/work.h"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/registry.h"
#include "collectives/algorithms/steps.h"
#include "collectives/cost/reason.h"
#include "collectives/cost/size_rules.h"
#include "engine/base/brief.h"
#include "engine/base/error.h"
#include "engine/base/spelling.h"

namespace lockstep::tools::bench {
namespace {

using collectives::Action;
using collectives::Plan;
using collectives::Request;
using collectives::Space;

Request request(const Task& task, collectives::Range subject) {
  Request r;
  r.name = "benchmark";
  r.dtype = task.dtype;
  r.op = task.op;
  r.mean = task.mean;
  r.subject = subject;
  r.host = task.host;
  return r;
}

Plan plan_of(const Task& task, const std::string& algorithm, const Request& r) {
  switch (task.collective) {
    case Collective::kAllReduce:
      return collectives::find_algorithm(algorithm).make(r);
    case Collective::kReduceScatter:
      return direct_reduce_scatter(r);
    case Collective::kAllGather:
      return direct_all_gather(r);
    case Collective::kBroadcast:
      return direct_broadcast(r);
  }
  engine::broken("a collective without a plan");
}

// Moves every result of every reduction by `by` elements, except intermediate results in scratch.
void move_targets(Plan& plan, std::size_t by) {
  for (auto& lanes : plan.lanes)
    for (auto& lane : lanes)
      for (auto& step : lane)
        for (auto& to : step.to)
          if (to.space == plan.space) to.offset += by;
}

void forget_the_others(Plan& plan) {
  for (auto& lanes : plan.lanes)
    for (auto& lane : lanes)
      std::erase_if(lane, [](const collectives::Step& step) {
        return step.action == Action::kArrive || step.action == Action::kAwait;
      });
}

// Returns a plan that copies each rank's input from offset 0 to offset `to`.
Plan copy(const Task& task, const Request& from, std::size_t to) {
  Request plain = from;
  plain.op = collectives::ReduceOp::kSum, plain.mean = false;
  Plan plan = collectives::empty_plan(plain, "copy", 1);
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    const collectives::Range mine = input_range(task, from.subject.size(), rank);
    if (mine.empty()) continue;
    plan.lanes[std::size_t(rank)][0].push_back(collectives::reduce(
        mine.size(), {{rank, from.space, mine.begin}}, {{rank, from.space, to + mine.begin}}));
  }
  return plan;
}

// Returns why an algorithm cannot serve the task; empty if it can.
std::string refusal(const Task& task, const collectives::Algorithm& algorithm) {
  if (task.collective != Collective::kAllReduce && algorithm.name != "direct")
    return fmt::format("makes all-reduces only, and {} was asked for; use direct",
                       name(task.collective));
  return algorithm.refusal(task.host);
}

// From this size on, direct stores results out of place at once. Smaller inputs are copied first:
// then a line that another core holds travels once, not once for the input and once for the result.
constexpr std::size_t kStoresAnywhere = std::size_t(4) << 20;

// Returns whether results out of place need no copy of the input. The plan of a single rank is
// empty.
bool stores_anywhere(const Task& task, const std::string& algorithm, std::size_t count) {
  if (!task.reduces() || task.ranks() == 1) return false;
  return algorithm == "one_shot" ||
         (algorithm == "direct" && count * engine::size_of(task.dtype) >= kStoresAnywhere);
}

// Returns the sizes of the spaces, without plans.
Work spaces(const Task& task, const std::string& algorithm, std::size_t count) {
  const std::size_t blocks = (count + engine::kBlock - 1) / engine::kBlock;
  Work w;
  w.output = blocks * engine::kBlock;
  w.elements = 2 * w.output;
  const Request in = request(task, {0, count}), out = request(task, {w.output, w.output + count});
  const auto& one = collectives::find_algorithm(algorithm);
  w.scratch = stores_anywhere(task, algorithm, count) ? 2 * one.scratch(in)
                                                      : std::max(one.scratch(in), one.scratch(out));
  return w;
}

collectives::Range share(const Task& task, std::size_t count, int rank, Shares shares) {
  if (shares == Shares::kSlices) return collectives::slice({0, count}, rank, task.ranks());
  const std::size_t part = equal_share(task, count), begin = std::size_t(rank) * part;
  return {std::min(begin, count), std::min(begin + part, count)};
}

// Indices of a size and an algorithm in the table of the planner.
struct PlannedPlace {
  std::size_t size = 0, algorithm = 0;
};

// Returns nothing if the planner did not predict this size or algorithm.
std::optional<PlannedPlace> planned_place(const std::optional<collectives::Choices>& planned,
                                          const std::string& algorithm, std::size_t bytes) {
  if (!planned) return std::nullopt;
  const auto& sizes = planned->sizes();
  const auto& algorithms = planned->algorithms();
  const auto size = std::find(sizes.begin(), sizes.end(), bytes);
  const auto name = std::find(algorithms.begin(), algorithms.end(), algorithm);
  if (size == sizes.end() || name == algorithms.end()) return std::nullopt;
  return PlannedPlace{std::size_t(size - sizes.begin()), std::size_t(name - algorithms.begin())};
}

// Returns why an algorithm that is timed with others is not the choice.
std::string why_not(const std::optional<collectives::Choices>& planned,
                    const std::optional<PlannedPlace>& place, const std::string& choice,
                    std::size_t bytes) {
  const std::optional<PlannedPlace> best = planned_place(planned, choice, bytes);
  if (!place || !best) return "it was asked for";
  const std::string& name = planned->algorithms()[place->algorithm];
  const std::string same = planned->same(place->size, place->algorithm);
  if (!same.empty()) return "same plan as " + same;
  const collectives::Price& its = planned->price(place->size, place->algorithm);
  const collectives::Price& least = planned->price(best->size, best->algorithm);
  return its.seconds > least.seconds ? collectives::reason(choice, least, name, its)
                                     : fmt::format("not clearly faster than {}", choice);
}

// Returns the planner's choice, or the only algorithm that exists. If that cannot serve the task,
// returns nothing, or throws Error(kInvalid) if `asked_for`.
std::optional<Choice> best_of(const Task& task, std::size_t bytes,
                              const std::optional<collectives::Choices>& planned, bool asked_for) {
  if (planned) {
    const collectives::Choice chosen = planned->choose(bytes);
    return Choice{chosen.algorithm, chosen.reason};
  }
  const std::string why = refusal(task, collectives::find_algorithm("direct"));
  if (!why.empty() && !asked_for) return std::nullopt;
  engine::require(why.empty(), "{} is made by direct, which {}", name(task.collective), why);
  const char* const alone =
      task.reduces() ? "one rank has nothing to add" : "one rank has nobody to tell";
  return Choice{"direct", task.ranks() == 1
                              ? alone
                              : fmt::format("no other algorithm makes {}", name(task.collective))};
}

}  // namespace

bool Task::one_host() const {
  return std::all_of(host.begin(), host.end(), [&](int h) { return h == host[0]; });
}

double Task::bus_factor() const {
  const double n = ranks();
  switch (collective) {
    case Collective::kAllReduce:
      return 2 * (n - 1) / n;
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      return (n - 1) / n;
    case Collective::kBroadcast:
      return n > 1 ? 1 : 0;
  }
  engine::broken("a collective whose bytes nobody counted");
}

const char* name(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kBroadcast:
      return "broadcast";
  }
  engine::broken("a collective without a name");
}

const char* mpi_name(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "MPI_Allreduce";
    case Collective::kReduceScatter:
      return "MPI_Reduce_scatter_block";
    case Collective::kAllGather:
      return "MPI_Allgather";
    case Collective::kBroadcast:
      return "MPI_Bcast";
  }
  engine::broken("a collective that MPI has no name for");
}

std::optional<collectives::Choices> planned(const Task& task, const collectives::Topology& topology,
                                            const std::vector<std::size_t>& counts) {
  if (task.collective != Collective::kAllReduce || task.ranks() == 1) return std::nullopt;
  std::vector<std::size_t> sizes;
  for (const std::size_t count : counts) sizes.push_back(count * engine::size_of(task.dtype));
  return plan_all_reduce(topology, collectives::all_reduce_algorithms(), {}, sizes);
}

std::vector<std::string> asked(const Task& task, const std::string& wanted, std::size_t count) {
  std::vector<std::string> names;
  if (wanted == "all") {
    for (const auto& algorithm : collectives::all_reduce_algorithms())
      if (refusal(task, algorithm).empty()) names.emplace_back(algorithm.name);
    engine::require(!names.empty(), "--algorithm all: {} is made by direct alone, which {}",
                    name(task.collective), refusal(task, collectives::find_algorithm("direct")));
    return names;
  }
  const bool by_size = wanted.find(':') != std::string::npos;
  std::vector<collectives::SizeRule> rules;
  std::istringstream list(wanted.empty() ? wanted : wanted + ",");
  for (std::string entry; std::getline(list, entry, ',');) {
    const std::string name(collectives::without_blanks(entry));
    engine::require(!name.empty(), "--algorithm '{}': a name is missing at a comma", wanted);
    engine::require(!by_size || name.find(':') != std::string::npos,
                    "--algorithm {}: algorithms by size and names to compare are two things; write "
                    "{}:FROM..TO as well, or names alone",
                    wanted, name);
    if (!by_size) names.push_back(name);
  }
  if (by_size) rules = collectives::parse_size_rules(wanted);
  for (const auto& rule : rules) names.push_back(rule.algorithm);
  engine::require(by_size || !names.empty(), "--algorithm names no algorithm");
  std::vector<std::string> known{"auto", "all"};
  for (const auto& algorithm : collectives::all_reduce_algorithms())
    known.emplace_back(algorithm.name);
  for (const std::string& name : names) {
    engine::require(name != "all", "--algorithm {}: all stands alone", wanted);
    if (name == "auto" && !by_size) continue;
    engine::require(std::ranges::find(known, name) != known.end(),
                    "unknown all-reduce algorithm '{}'{}", engine::brief(name),
                    engine::known_names(name, known));
    const std::string why = refusal(task, collectives::find_algorithm(name));
    engine::require(why.empty(), "--algorithm {}: {} {}", wanted, name, why);
  }
  if (!by_size) return names;
  const std::size_t bytes = count * engine::size_of(task.dtype);
  for (const auto& rule : rules)
    if (rule.from <= bytes && bytes < rule.to) return {rule.algorithm};
  return {"auto"};
}

std::vector<Choice> choices(const Task& task, const std::string& wanted, std::size_t count,
                            const std::optional<collectives::Choices>& planned) {
  const std::size_t bytes = count * engine::size_of(task.dtype);
  std::vector<std::string> names = asked(task, wanted, count);
  const bool automatic = std::find(names.begin(), names.end(), "auto") != names.end();
  const std::optional<Choice> best = best_of(task, bytes, planned, automatic);
  std::vector<Choice> found;
  for (const std::string& name : names) {
    Choice choice{name, {}};
    if (name == "auto") choice = *best;
    choice.chosen = best && best->algorithm == choice.algorithm;
    const std::optional<PlannedPlace> place = planned_place(planned, choice.algorithm, bytes);
    if (wanted == "all" && place && !planned->same(place->size, place->algorithm).empty()) continue;
    choice.reason =
        choice.chosen ? best->reason : why_not(planned, place, best ? best->algorithm : "", bytes);
    if (place) choice.predicted_us = 1e6 * planned->price(place->size, place->algorithm).seconds;
    const auto same = std::find_if(found.begin(), found.end(), [&](const Choice& other) {
      return other.algorithm == choice.algorithm;
    });
    if (same == found.end()) {
      found.push_back(choice);
    } else if (name == "auto") {
      *same = choice;
    }
  }
  return found;
}

Work work(const Task& task, const std::string& algorithm, std::size_t count, std::size_t scratch,
          int stages) {
  Work w = spaces(task, algorithm, count);
  Request in = request(task, {0, count}), out = request(task, {w.output, w.output + count});
  in.scratch = out.scratch = scratch;
  const auto add = [&](Plan plan, std::vector<int> after = {}) {
    w.plan.push_back({std::move(plan), std::move(after), false});
    return stages + int(w.plan.size()) - 1;
  };
  w.in_place = {add(plan_of(task, algorithm, in))};
  if (stores_anywhere(task, algorithm, count)) {
    // A plan with alternating scratch cannot share it with another plan.
    Request apart = in;
    apart.scratch = scratch + collectives::find_algorithm(algorithm).scratch(in);
    Plan plan = plan_of(task, algorithm, apart);
    move_targets(plan, w.output);
    w.out_of_place = {add(std::move(plan))};
  } else {
    const int first = add(copy(task, in, w.output));
    w.out_of_place = {first, add(plan_of(task, algorithm, out), {first})};
  }
  if (task.one_host()) {
    Plan plan = plan_of(task, "direct", in);
    forget_the_others(plan);
    w.roofline = {add(std::move(plan))};
  }
  return w;
}

std::optional<double> wire_us(const Task& task, std::size_t count, double bytes_per_second) {
  if (task.one_host() || task.collective != Collective::kAllReduce || bytes_per_second <= 0)
    return std::nullopt;
  const double hosts = 1 + *std::max_element(task.host.begin(), task.host.end());
  const double bytes = double(count * engine::size_of(task.dtype));
  return 1e6 * 2 * (hosts - 1) / hosts * bytes / bytes_per_second;
}

std::size_t work_elements(const Task& task, const std::vector<std::string>& algorithms,
                          std::size_t count) {
  std::size_t elements = 0, scratch = 0;
  for (const std::string& algorithm : algorithms) {
    const Work w = spaces(task, algorithm, count);
    elements = std::max(elements, w.elements);
    scratch += w.scratch;
  }
  return elements + scratch;
}

// Gives each plan its own scratch, because some plans alternate theirs.
Work contest_work(const Task& task, const std::vector<std::string>& names, std::size_t count) {
  Work w;
  w.elements = count;
  for (const std::string& name : names) {
    Request r = request(task, {0, count});
    r.scratch = w.scratch;
    w.scratch += collectives::find_algorithm(name).scratch(r);
    w.in_place.push_back(int(w.plan.size()));
    w.plan.push_back({plan_of(task, name, r), {}, false});
  }
  return w;
}

Plan in_place_plan(const Task& task, const std::string& algorithm, std::size_t count) {
  return plan_of(task, algorithm, request(task, {0, count}));
}

void add_bucket(Work& w, const Task& task, const std::string& algorithm, std::size_t count) {
  engine::invariant(w.elements % engine::kBlock == 0,
                    "a bucket behind one that is no whole blocks");
  Request r = request(task, {w.elements, w.elements + count});
  r.name = fmt::format("bucket {}", w.plan.size());
  r.scratch = w.scratch;
  w.elements += count;
  w.scratch += collectives::find_algorithm(algorithm).scratch(r);
  w.in_place.push_back(int(w.plan.size()));
  w.plan.push_back({plan_of(task, algorithm, r), {}, false});
}

Work bucket_work(const Task& task, const std::string& algorithm, std::size_t count, int buckets) {
  Work w;
  for (int bucket = 0; bucket < buckets; ++bucket) {
    const collectives::Range part = collectives::slice({0, count}, bucket, buckets);
    if (!part.empty()) add_bucket(w, task, algorithm, part.size());
  }
  return w;
}

std::size_t equal_share(const Task& task, std::size_t count) {
  const auto ranks = std::size_t(task.ranks());
  return (count + ranks - 1) / ranks;
}

collectives::Range input_range(const Task& task, std::size_t count, int rank, Shares shares) {
  if (task.reduces()) return {0, count};
  if (task.collective == Collective::kBroadcast) return {0, rank == 0 ? count : 0};
  return share(task, count, rank, shares);
}

collectives::Range result_range(const Task& task, std::size_t count, int rank, Shares shares) {
  if (task.collective != Collective::kReduceScatter) return {0, count};
  return share(task, count, rank, shares);
}

}  // namespace lockstep::tools::bench
