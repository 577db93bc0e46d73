// SPDX-License-Identifier: MIT
#include "strategies/synchronous/step_plans.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/registry.h"
#include "collectives/algorithms/vendor_sum.h"
#include "collectives/run/owned_state.h"
#include "engine/optim/update_segments.h"

namespace lockstep::strategies {
namespace {

using collectives::Plan;
using collectives::Request;
using collectives::Space;
using engine::kBlock;
using engine::Range;

class PlanAssembly {
 public:
  PlanAssembly(const DesignInput& input, const PlanChoices& choices, StepDesign& design)
      : input_(input), choices_(choices), design_(design) {}

  void run() {
    design_.space.norm_blocks = (input_.graph->trainable() + kBlock - 1) / kBlock;
    design_.segments =
        update_segments(input_.rule, input_.graph->layout(), input_.graph->trainable());
    const std::size_t norms = needs_layer_norms()
                                  ? collectives::OwnedState::layer_norms(design_.space.norm_blocks,
                                                                         design_.segments.size())
                                  : design_.space.norm_blocks;
    design_.space.norms_bytes = std::max<std::size_t>(1, norms) * sizeof(double);
    // The host's sums need their own scratch, after the numbers, since a device's scratch is not in
    // host memory.
    if (input_.queued) scratch_ = design_.space.exchange_bytes / sizeof(double);
    Plan metrics = exchange("metrics of a step", design_.space.metrics);
    Plan gather = exchange("gather", design_.space.gather);
    Plan statistics = exchange("statistics", design_.space.statistics);
    if (input_.queued) design_.space.exchange_bytes = scratch_ * sizeof(double);
    add_reductions();
    add_updates();
    design_.stages.metrics = add_by_host(std::move(metrics));
    design_.stages.of_step = design_.plan.size();
    design_.stages.gather = add_by_host(std::move(gather));
    if (!design_.space.statistics.empty())
      design_.stages.statistics = add_by_host(std::move(statistics));
    Request weights = request("start values", {0, input_.graph->parameters()});
    weights.space = Space::kWeight;
    design_.stages.start = add(sum_of(weights));
    design_.space.scratch_bytes = scratch_ * sizeof(double);
  }

 private:
  bool needs_layer_norms() const { return input_.rule.needs() == engine::Needs::kLayerNorms; }

  Request request(std::string name, Range subject) const {
    Request request;
    request.name = std::move(name);
    request.dtype = input_.graph->dtype();
    request.subject = subject;
    request.host = input_.host;
    return request;
  }

  // Plans in flight at once must not share scratch: each gets its own. Counted in float64 elements,
  // so that plans of different dtypes do not overlap; a narrower plan has the same offset, later.
  Plan all_reduce(Request request) {
    const std::size_t bytes = request.subject.size() * engine::size_of(request.dtype);
    const collectives::Algorithm& algorithm =
        collectives::find_algorithm(choices_.algorithm(bytes));
    const std::size_t wide = sizeof(double) / engine::size_of(request.dtype);
    request.scratch = scratch_ * wide;
    scratch_ += (algorithm.scratch(request) + wide - 1) / wide;
    return algorithm.make(request);
  }

  // Returns the sum of numbers in the replicas' memory.
  Plan sum_of(const Request& request) {
    return choices_.vendor.empty() ? all_reduce(request)
                                   : collectives::vendor_all_reduce(request, choices_.vendor);
  }

  int add(Plan plan, std::vector<int> after = {}, bool first_in_line = false) {
    design_.plan.push_back({std::move(plan), std::move(after), first_in_line});
    return int(design_.plan.size()) - 1;
  }

  Plan exchange(const std::string& name, Range range) {
    if (range.empty()) return {};
    Request numbers = request(name, range);
    numbers.dtype = engine::DType::kFloat64;
    numbers.space = Space::kExchange;
    return all_reduce(numbers);
  }

  int add_by_host(Plan plan) {
    const int stage = add(std::move(plan));
    design_.plan.back().by_host = true;
    return stage;
  }

  void add_reductions() {
    for (std::size_t i = 0; i < design_.space.points.size(); ++i) {
      Request sums =
          request("reduction " + input_.graph->reductions()[i].name, design_.space.points[i]);
      sums.dtype = engine::DType::kFloat64;
      sums.space = Space::kExchange;
      design_.stages.reductions.push_back(add(all_reduce(sums), {}, true));
    }
  }

  // Adds each bucket's sum and update. An update that needs norms comes after the squares of
  // all sums; else after its own sum, or together with it in one plan.
  void add_updates() {
    const bool fused = design_.update == Update::kFused;
    const bool waits = input_.rule.needs_squares() || needs_layer_norms();
    design_.stages.buckets.resize(design_.buckets.size());
    auto bucket_request = [&](std::size_t b, const char* what) {
      Request r =
          request(bucket_name(b, design_.buckets[b], *input_.graph) + what, design_.buckets[b]);
      r.rotation = int(b % input_.host.size());
      r.wire = choices_.wire;
      return r;
    };
    auto add_to = [&](std::size_t b, Plan plan, std::vector<int> after) {
      design_.stages.buckets[b].push_back(add(std::move(plan), std::move(after)));
    };
    std::vector<int> norms;  // stages that leave squares
    for (std::size_t b = 0; b < design_.buckets.size() && (waits || !fused); ++b) {
      Request sum = bucket_request(b, ": sum");
      sum.squares = fused;
      add_to(b, fused ? collectives::direct_reduce_scatter(sum) : sum_of(sum), {});
      if (!fused && waits) {
        add_to(b, collectives::local_squares(bucket_request(b, ": squares")),
               design_.stages.buckets[b]);
      }
      norms.push_back(design_.stages.buckets[b].back());
    }
    design_.stages.updates.resize(design_.buckets.size());
    for (std::size_t i = 0; i < design_.buckets.size(); ++i) {
      // An update that waits for norms runs after backward, for the next forward pass. So the first
      // layer, whose bucket is the last, comes first.
      const std::size_t b = waits ? design_.buckets.size() - 1 - i : i;
      Request r = bucket_request(b, waits || !fused ? ": update" : ": sum and update");
      r.update = fused && !waits;
      Plan plan = r.update ? all_reduce(r)
                  : fused  ? collectives::direct_update_and_store(r)
                           : collectives::local_update(r);
      add_to(b, std::move(plan), waits ? norms : design_.stages.buckets[b]);
      design_.stages.updates[b] = design_.stages.buckets[b].back();
    }
  }

  const DesignInput& input_;
  const PlanChoices& choices_;
  StepDesign& design_;
  std::size_t scratch_ = 0;  // float64 elements given out so far
};

}  // namespace

void add_plans(const DesignInput& input, const PlanChoices& choices, StepDesign& design) {
  PlanAssembly(input, choices, design).run();
}

}  // namespace lockstep::strategies
