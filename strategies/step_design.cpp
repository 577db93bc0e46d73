// SPDX-License-Identifier: MIT
#include "strategies/step_design.h"

#include <algorithm>
#include <set>

#include "collectives/algorithms.h"
#include "collectives/registry.h"
#include "collectives/size_rules.h"
#include "engine/base/error.h"

namespace lockstep::strategies {
namespace {

using collectives::Plan;
using collectives::Request;
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

class Designer {
 public:
  Designer(const DesignInput& input, const DesignOptions& options)
      : input_(input), options_(options), graph_(*input.graph) {}

  StepDesign run() {
    choose();
    design_.norm_blocks = (graph_.trainable() + kBlock - 1) / kBlock;
    design_.norms_bytes = std::max<std::size_t>(1, design_.norm_blocks) * sizeof(double);
    design_.buckets = options_.bucket_ends.empty()
                          ? cut_buckets(graph_.trainable(), design_.bucket_bytes, width())
                          : buckets_of(options_.bucket_ends, graph_.trainable());
    lay_out_exchange();
    add_reductions();
    add_updates();
    design_.metrics = add_exchange("metrics of a step", design_.metrics_range);
    design_.step_stages = design_.plan.size();
    design_.gather = add_exchange("gather", design_.gather_range);
    Request weights = request("start values", {0, graph_.parameters()});
    weights.space = Space::kWeight;
    design_.start = add(all_reduce(weights));
    design_.scratch_bytes = scratch_ * sizeof(double);
    return std::move(design_);
  }

 private:
  std::size_t width() const { return engine::size_of(graph_.dtype()); }
  std::size_t bucket_bytes() const {  // as asked for
    return options_.bucket_bytes > 0 ? options_.bucket_bytes : kBucketBytes;
  }
  bool needs_norm() const { return input_.rule.needs() == engine::Needs::kGlobalNorm; }

  void choose() {
    const int hosts = int(std::set<int>(input_.host.begin(), input_.host.end()).size());
    const std::string& wanted = options_.algorithm;
    if (wanted != "auto") {
      const std::string refusal = collectives::find_algorithm(wanted).refusal(input_.host);
      require(refusal.empty(), "algorithm {} {}; this job has {} hosts: use auto", wanted, refusal,
              hosts);
      design_.algorithm = wanted;
      design_.reason = "it was asked for";
    } else if (input_.host.size() == 1) {
      design_.algorithm = "direct";
      design_.reason = "there is one replica, so nothing has to be sent";
    } else if (hosts == 1) {
      design_.algorithm = "direct";
      design_.reason = fmt::format(
          "the {} replicas are on one host, so each adds its slice straight from the others' "
          "memory, "
          "the least traffic there can be",
          input_.host.size());
    } else if (input_.choices != nullptr) {
      const collectives::Choice choice =
          input_.choices->choose(std::min(bucket_bytes(), graph_.trainable() * width()));
      design_.algorithm = choice.algorithm;
      design_.reason = choice.reason;
    } else {
      design_.algorithm = "ring";
      design_.reason = fmt::format("{} replicas are on {} hosts", input_.host.size(), hosts);
    }
    const std::string& update = options_.update;
    require(update == "auto" || update == "fused" || update == "apart",
            "unknown update '{}'; known: auto, fused, apart", update);
    const bool updates = collectives::find_algorithm(design_.algorithm).updates;
    const bool direct = design_.algorithm == "direct";
    require(update != "fused" || updates,
            "update fused needs an algorithm that has a place for it, and {} has none: use apart",
            design_.algorithm);
    require(update != "fused" || !needs_norm() || direct,
            "update fused with a clipped norm needs the direct algorithm, since all must know the "
            "norm first, and {} was chosen: use apart",
            design_.algorithm);
    const bool fits = updates && (!needs_norm() || direct);
    design_.update = update != "auto" ? update : fits ? "fused" : "apart";
    design_.bucket_bytes = bucket_bytes();
    design_.kernels = options_.kernels.empty() ? "auto" : options_.kernels;
    if (!options_.reason.empty()) design_.reason = options_.reason;
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
    const collectives::Algorithm& algorithm = collectives::find_algorithm(design_.algorithm);
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
    for (std::size_t b = 0; b < design_.buckets.size(); ++b) {
      Request r = bucket_request(b, needs_norm() || !fused ? ": update" : ": sum and update");
      r.update = fused && !needs_norm();
      Plan plan = r.update ? all_reduce(r)
                  : fused  ? collectives::direct_update_and_store(r)
                           : collectives::local_update(r);
      add_to(b, std::move(plan), needs_norm() ? norms : design_.stages[b]);
      design_.updates.push_back(design_.stages[b].back());
    }
  }

  const DesignInput& input_;
  const DesignOptions& options_;
  const engine::Graph& graph_;
  StepDesign design_;
  std::size_t scratch_ = 0;  // float64 elements given out so far
};

}  // namespace

StepDesign design_step(const DesignInput& input, const DesignOptions& options) {
  return Designer(input, options).run();
}

std::string sentence(const StepDesign& design) {
  const char* update = design.update == "fused" ? "with the optimizer's update inside"
                                                : "followed by the update on each replica";
  return fmt::format("all-reduce: {} {}, {} bucket{} of up to {}, because {}", design.algorithm,
                     update, design.buckets.size(), design.buckets.size() == 1 ? "" : "s",
                     collectives::size_text(design.bucket_bytes), design.reason);
}

}  // namespace lockstep::strategies
