// SPDX-License-Identifier: MIT
#include "strategies/step_design.h"

#include <algorithm>
#include <map>
#include <set>

#include "collectives/algorithms.h"
#include "collectives/registry.h"
#include "collectives/size_rules.h"
#include "engine/base/error.h"

namespace lockstep::strategies {
namespace {

using collectives::Plan;
using collectives::Request;
using collectives::SizeRule;
using collectives::Space;
using engine::kBlock;
using engine::Range;
using engine::require;

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

// The borders that a checkpoint was written with.
std::vector<Range> buckets_of(const std::vector<std::size_t>& ends, std::size_t trainable) {
  std::vector<Range> buckets;
  std::size_t begin = 0;
  for (std::size_t end : ends) {
    if (end <= begin || end > trainable || (end % kBlock != 0 && end != trainable)) break;
    buckets.push_back({begin, end});
    begin = end;
  }
  if (begin != trainable || buckets.size() != ends.size()) {
    engine::fail(engine::Code::kCorrupt, "the checkpoint's buckets do not fit its model");
  }
  return buckets;
}

std::vector<Range> cut_buckets(std::size_t trainable, std::size_t bucket_bytes, std::size_t width) {
  const std::size_t size = std::max(kBlock, round_up(bucket_bytes / width, kBlock));
  std::vector<Range> buckets;
  for (std::size_t begin = 0; begin < trainable; begin += size) {
    buckets.push_back({begin, std::min(trainable, begin + size)});
  }
  return buckets;
}

// "bucket 1 (conv1.weight conv1.bias)": the parameters that a bucket touches, for messages.
std::string bucket_name(std::size_t index, Range bucket, const engine::Graph& graph) {
  std::string text = fmt::format("bucket {} (", index);
  bool first = true;
  for (const engine::Parameter& parameter : graph.layout()) {
    if (!parameter.range.meets(bucket)) continue;
    text += (first ? "" : " ") + parameter.name;
    first = false;
  }
  return text + ")";
}

// The fewest rules that give each of these sizes its algorithm; one name alone is itself. A size
// between two that are not alike goes with the smaller.
std::string rules_text(const std::map<std::size_t, std::string>& chosen) {
  std::string text, before;
  for (const auto& [bytes, name] : chosen) {
    if (name == before) continue;
    text += before.empty() ? name + ":.." : fmt::format("{},{}:{}..", bytes, name, bytes);
    before = name;
  }
  return text.ends_with(":..") ? before : text;
}

// "ring for 2 buckets and direct for 1", in the order in which buckets come; one name alone is
// itself.
std::string counted(const std::vector<std::string>& algorithms) {
  std::string text;
  std::set<std::string> seen;
  for (const std::string& name : algorithms) {
    if (!seen.insert(name).second) continue;
    const auto count = std::size_t(std::count(algorithms.begin(), algorithms.end(), name));
    if (count == algorithms.size()) return name;
    text += text.empty() ? fmt::format("{} for {} bucket{}", name, count, count == 1 ? "" : "s")
                         : fmt::format(" and {} for {}", name, count);
  }
  return text;
}

class Designer {
 public:
  Designer(const DesignInput& input, const DesignOptions& options)
      : input_(input),
        options_(options),
        graph_(*input.graph),
        hosts_(std::set<int>(input.host.begin(), input.host.end()).size()),
        rules_(collectives::parse_size_rules(options.algorithm)) {
    for (const SizeRule& rule : rules_) {
      const std::string refusal = collectives::find_algorithm(rule.algorithm).refusal(input_.host);
      require(refusal.empty(), "algorithm {} {}; this job has {} hosts: use auto", rule.algorithm,
              refusal, hosts_);
    }
    design_.bucket_bytes = options_.bucket_bytes > 0 ? options_.bucket_bytes : kBucketBytes;
    design_.buckets = options_.bucket_ends.empty()
                          ? cut_buckets(graph_.trainable(), design_.bucket_bytes, width())
                          : buckets_of(options_.bucket_ends, graph_.trainable());
    lay_out_exchange();
  }

  std::vector<std::size_t> sizes_to_choose() const {
    std::set<std::size_t> sizes;
    const auto add = [&](Range subject, std::size_t width) {
      const std::size_t bytes = subject.size() * width;
      if (hosts_ > 1 && rule_for(bytes) == nullptr) sizes.insert(bytes);
    };
    for (const Range& bucket : design_.buckets) add(bucket, width());
    for (const Range& point : design_.points) add(point, width());
    add(design_.metrics_range, sizeof(double));
    add(design_.gather_range, sizeof(double));
    add({0, graph_.parameters()}, width());
    return {sizes.begin(), sizes.end()};
  }

  StepDesign run() {
    choose_algorithms();
    choose_update();
    design_.kernels = options_.kernels.empty() ? "auto" : options_.kernels;
    design_.asked = options_.asked.empty() ? options_.algorithm : options_.asked;
    design_.norm_blocks = (graph_.trainable() + kBlock - 1) / kBlock;
    design_.norms_bytes = std::max<std::size_t>(1, design_.norm_blocks) * sizeof(double);
    add_reductions();
    add_updates();
    design_.metrics = add_exchange("metrics of a step", design_.metrics_range);
    design_.step_stages = design_.plan.size();
    design_.gather = add_exchange("gather", design_.gather_range);
    Request weights = request("start values", {0, graph_.parameters()});
    weights.space = Space::kWeight;
    design_.start = add(all_reduce(weights));
    design_.scratch_bytes = scratch_ * sizeof(double);
    design_.rules = rules_text(chosen_);
    const std::set<std::string> of_buckets(design_.algorithms.begin(), design_.algorithms.end());
    std::set<std::string> others;
    for (const auto& [bytes, name] : chosen_)
      if (!of_buckets.contains(name)) others.insert(name);
    design_.other_algorithms.assign(others.begin(), others.end());
    return std::move(design_);
  }

 private:
  std::size_t width() const { return engine::size_of(graph_.dtype()); }
  std::size_t bytes_of(Range bucket) const { return bucket.size() * width(); }
  bool needs_norm() const { return input_.rule.needs() == engine::Needs::kGlobalNorm; }

  const SizeRule* rule_for(std::size_t bytes) const {
    const auto found = std::find_if(rules_.begin(), rules_.end(), [&](const SizeRule& rule) {
      return rule.from <= bytes && bytes < rule.to;
    });
    return found == rules_.end() ? nullptr : &*found;
  }

  struct Picked {
    std::string algorithm, why;  // why: the end of a sentence
    bool asked = false;
  };

  Picked pick(std::size_t bytes) const {
    const std::size_t ranks = input_.host.size();
    if (const SizeRule* rule = rule_for(bytes)) return {rule->algorithm, "it was asked for", true};
    if (ranks == 1) return {"direct", "there is one replica, so nothing has to be sent"};
    if (hosts_ == 1)
      return {"direct",
              fmt::format("the {} replicas are on one host, so each adds its slice straight from "
                          "the others' memory, the least traffic there can be",
                          ranks)};
    if (input_.choices == nullptr)
      return {"ring", fmt::format("{} replicas are on {} hosts", ranks, hosts_)};
    const collectives::Choice choice = input_.choices->choose(bytes);
    std::string why = choice.reason;
    if (!choice.runner_up.empty())
      why += fmt::format(" ({} predicted for {}, {} for {})",
                         collectives::time_text(choice.seconds), collectives::size_text(bytes),
                         collectives::time_text(choice.runner_up_seconds), choice.runner_up);
    return {choice.algorithm, why};
  }

  const std::string& algorithm_of(std::size_t bytes) {
    const auto [at, fresh] = chosen_.try_emplace(bytes);
    if (fresh) at->second = pick(bytes).algorithm;
    return at->second;
  }

  static bool has_place(const std::string& algorithm) {
    return collectives::find_algorithm(algorithm).updates;
  }

  // Of buckets; the other sums follow as they are added.
  void choose_algorithms() {
    std::vector<Picked> picked;  // as many as there are algorithms
    for (const Range& bucket : design_.buckets) {
      Picked mine = pick(bytes_of(bucket));
      const bool gives_way = !mine.asked && options_.update != "apart" && !needs_norm() &&
                             !picked.empty() && has_place(picked[0].algorithm) &&
                             !has_place(mine.algorithm);
      if (gives_way) mine = picked[0];
      chosen_[bytes_of(bucket)] = mine.algorithm;
      design_.algorithms.push_back(mine.algorithm);
      if (std::ranges::find(picked, mine.algorithm, &Picked::algorithm) == picked.end())
        picked.push_back(std::move(mine));
    }
    if (picked.empty()) picked.push_back(pick(0));
    if (picked.size() == 1) {
      design_.algorithm = picked[0].algorithm;
      design_.reason = picked[0].why;
    } else {
      design_.algorithm = rules_text(chosen_);
      for (const Picked& one : picked)
        design_.reason +=
            fmt::format("{}{}: {}", design_.reason.empty() ? "" : "; ", one.algorithm, one.why);
    }
    if (!options_.reason.empty()) design_.reason = options_.reason;
  }

  void choose_update() {
    const std::string& update = options_.update;
    require(update == "auto" || update == "fused" || update == "apart",
            "unknown update '{}'; known: auto, fused, apart", update);
    bool fits = true;
    for (const std::string& algorithm : design_.algorithms) {
      const bool updates = has_place(algorithm), direct = algorithm == "direct";
      require(update != "fused" || updates,
              "update fused needs an algorithm that has a place for it, and {} has none: use apart",
              algorithm);
      require(update != "fused" || !needs_norm() || direct,
              "update fused with a clipped norm needs the direct algorithm, since all must know "
              "the norm first, and {} was chosen: use apart",
              algorithm);
      fits = fits && updates && (!needs_norm() || direct);
    }
    design_.update = update != "auto" ? update : fits ? "fused" : "apart";
  }

  // Reductions of layers first, in the graph's dtype, each from a block's beginning; then float64.
  void lay_out_exchange() {
    std::size_t at = 0;  // elements of the graph's dtype
    for (const engine::ReductionSpec& point : graph_.reductions()) {
      design_.points.push_back({at, at + point.count});
      at = round_up(at + point.count, kBlock);
    }
    const std::size_t ranks = input_.host.size();
    std::size_t numbers = round_up(at * width() / sizeof(double), kBlock);
    auto take = [&](std::size_t count) {
      const Range range{numbers, numbers + count};
      numbers = round_up(range.end, kBlock);
      return range;
    };
    design_.metrics_range = take(input_.totals + ranks * input_.metrics_per_rank);
    design_.gather_range = take(ranks * input_.gather_per_rank);
    design_.exchange_bytes = numbers * sizeof(double);
  }

  Request request(std::string name, Range subject) const {
    Request request;
    request.name = std::move(name);
    request.dtype = graph_.dtype();
    request.subject = subject;
    request.host = input_.host;
    return request;
  }

  // Plans in flight at once must not share scratch: each gets its own. Counted in float64 elements,
  // so that plans of different dtypes do not overlap; a narrower plan has the same offset, later.
  Plan all_reduce(Request request) {
    const std::size_t bytes = request.subject.size() * engine::size_of(request.dtype);
    const collectives::Algorithm& algorithm = collectives::find_algorithm(algorithm_of(bytes));
    const std::size_t wide = sizeof(double) / engine::size_of(request.dtype);
    request.scratch = scratch_ * wide;
    scratch_ += (algorithm.scratch(request) + wide - 1) / wide;
    return algorithm.make(request);
  }

  int add(Plan plan, std::vector<int> after = {}, bool first_in_line = false) {
    design_.plan.push_back({std::move(plan), std::move(after), first_in_line});
    return int(design_.plan.size()) - 1;
  }

  int add_exchange(const std::string& name, Range range) {
    Request numbers = request(name, range);
    numbers.dtype = engine::DType::kFloat64;
    numbers.space = Space::kExchange;
    return add(all_reduce(numbers));
  }

  void add_reductions() {
    for (std::size_t i = 0; i < design_.points.size(); ++i) {
      Request sums = request("reduction " + graph_.reductions()[i].name, design_.points[i]);
      sums.space = Space::kExchange;
      design_.reductions.push_back(add(all_reduce(sums), {}, true));
    }
  }

  // For each bucket its sum and its update. An update that needs the global norm comes after the
  // squares of all sums; else after its own sum, or together with it in one plan.
  void add_updates() {
    const bool fused = design_.update == "fused";
    design_.stages.resize(design_.buckets.size());
    auto bucket_request = [&](std::size_t b, const char* what) {
      Request r = request(bucket_name(b, design_.buckets[b], graph_) + what, design_.buckets[b]);
      r.turn = int(b % input_.host.size());
      return r;
    };
    auto add_to = [&](std::size_t b, Plan plan, std::vector<int> after) {
      design_.stages[b].push_back(add(std::move(plan), std::move(after)));
    };
    std::vector<int> norms;  // stages that leave squares
    for (std::size_t b = 0; b < design_.buckets.size() && (needs_norm() || !fused); ++b) {
      Request sum = bucket_request(b, ": sum");
      sum.squares = fused;
      add_to(b, fused ? collectives::direct_reduce_scatter(sum) : all_reduce(sum), {});
      if (!fused && needs_norm()) {
        add_to(b, collectives::local_squares(bucket_request(b, ": squares")), design_.stages[b]);
      }
      norms.push_back(design_.stages[b].back());
    }
    design_.updates.resize(design_.buckets.size());
    for (std::size_t i = 0; i < design_.buckets.size(); ++i) {
      // What waits for the norm runs when backward has ended, for the next forward pass: the first
      // layer, whose bucket is the last, comes first.
      const std::size_t b = needs_norm() ? design_.buckets.size() - 1 - i : i;
      Request r = bucket_request(b, needs_norm() || !fused ? ": update" : ": sum and update");
      r.update = fused && !needs_norm();
      Plan plan = r.update ? all_reduce(r)
                  : fused  ? collectives::direct_update_and_store(r)
                           : collectives::local_update(r);
      add_to(b, std::move(plan), needs_norm() ? norms : design_.stages[b]);
      design_.updates[b] = design_.stages[b].back();
    }
  }

  const DesignInput& input_;
  const DesignOptions& options_;
  const engine::Graph& graph_;
  std::size_t hosts_;
  std::vector<SizeRule> rules_;
  StepDesign design_;
  std::map<std::size_t, std::string> chosen_;  // by bytes, so far
  std::size_t scratch_ = 0;                    // float64 elements given out so far
};

}  // namespace

StepDesign design_step(const DesignInput& input, const DesignOptions& options) {
  return Designer(input, options).run();
}

std::vector<std::size_t> sizes_to_choose(const DesignInput& input, const DesignOptions& options) {
  return Designer(input, options).sizes_to_choose();
}

std::string sentence(const StepDesign& design) {
  const char* update = design.update == "fused" ? "with the optimizer's update inside"
                                                : "followed by the update on each replica";
  const std::string others =
      design.other_algorithms.empty()
          ? ""
          : fmt::format(", other sums by {}", fmt::join(design.other_algorithms, " and "));
  return fmt::format("all-reduce: {} {}, {} bucket{} of up to {}{}, because {}",
                     design.algorithms.empty() ? design.algorithm : counted(design.algorithms),
                     update, design.buckets.size(), design.buckets.size() == 1 ? "" : "s",
                     collectives::size_text(design.bucket_bytes), others, design.reason);
}

}  // namespace lockstep::strategies
