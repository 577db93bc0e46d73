// SPDX-License-Identifier: MIT
// All collectives of a training step, as one step plan: which buckets, which algorithm, the update
// fused into the reduction or separate from it. A pure function of the graph's layout and of the
// options, so every process gets the same; ranks compare its hash at the start.
//
// Buckets. Gradients become final in ascending order of the arena. A bucket is a span of it, closed
// at the first multiple of engine::kBlock at which it holds `bucket_bytes`; its collective can
// start when backward has passed its end.
//
// Algorithms. Every sum of the step, of buckets and of what the step adds beside them, takes one by
// its bytes: what a rule asks for, else the planner's. With one replica nothing is sent, and
// nothing is asked.
//
// Update. All buckets have it in the same place. One bucket whose algorithm was asked for and has
// no place for it has it separate for all, and so have a norm that must be known first between
// hosts, and norms of layers, which each rank takes for itself of sums that it has whole. Else the
// planner prices both ways, each with the algorithms that are cheapest for it: what the sums and
// updates of all buckets take one behind the other. Separate is taken where it takes less by more
// than a tenth: fused, mirrors are equal by construction and optimizer state exists once. Where
// processors are unlike only that keeps mirrors equal, so there nothing is weighed.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/plan/plan.h"
#include "engine/nn/graph.h"
#include "engine/ops/update_rule.h"
#include "strategies/synchronous/reason.h"
#include "strategies/synchronous/step_choices.h"
#include "strategies/synchronous/step_prices.h"

namespace lockstep::strategies {

// The usual size of a bucket, where sums are not queued on one host (those: step_design.cpp).
inline constexpr std::size_t kBucketBytes = std::size_t(4) << 20;

// The choices of a run, and what a checkpoint's plan adds to them (plan_record.h).
struct DesignOptions {
  StepChoices step = {};
  std::vector<std::size_t> bucket_ends = {};  // these borders
  // Of the run: where a checkpoint's plan was made for another, the update's place is chosen anew.
  std::optional<engine::UpdateRule> rule = {};
  std::string reason = {};                                // why the algorithm was chosen then
  std::optional<collectives::AlgorithmRules> asked = {};  // what was asked for then
  std::string update_reason = {};                         // why the update's place was chosen then
};

struct StepDesign {
  std::string algorithm;  // of all buckets; where they differ, rules of size_rules.h that say so
  Update update = Update::kFused;
  engine::Kernels kernels = engine::Kernels::kAuto;
  std::optional<engine::DType> wire;  // of gradients between hosts; else as they are
  Reason reason;                      // why this algorithm
  std::string predicted;  // "0.98 ms predicted for 4 MiB (next: ring, 1.57 ms)"; empty: nothing is
  Reason update_reason;   // why the update is where it is
  engine::UpdateRule rule;                        // that it was designed for
  engine::DType dtype = engine::DType::kFloat32;  // of weights and gradients
  std::string rules;  // of all sums of the step: asked for, they give this step again
  collectives::AlgorithmRules asked;
  std::size_t bucket_bytes = 0;
  std::vector<engine::Range> buckets;
  std::vector<std::string> algorithms;  // by bucket: names of collectives/algorithms/registry.h
  std::vector<std::string> other_algorithms;  // of the other sums, where they are none of these

  collectives::StepPlan plan;
  struct Stages {                 // indices into `plan`
    std::vector<int> reductions;  // of layers, by point
    std::vector<std::vector<int>>
        buckets;               // by bucket: all that its gradients start, in this order
    std::vector<int> updates;  // by bucket: the last of them: then weights are new
    int metrics = -1;          // once a step: totals and checksums
    int gather = -1;           // outside of steps: everybody's numbers
    int statistics = -1;       // outside of steps: their sums; -1: there are none
    int start = -1;            // before the first step: weights of rank 0 to all
    std::size_t of_step = 0;   // stages before this one can be in flight at once
  } stages;

  // Where things lie in the exchange space, in float64 elements, and how large spaces are.
  struct Layout {
    std::vector<engine::Range> points;          // of reductions
    engine::Range statistics, metrics, gather;  // the first: and how many count
    std::size_t exchange_bytes = 0, scratch_bytes = 0, norms_bytes = 0;
    std::size_t norm_blocks = 0;
  } space;
  std::vector<engine::UpdateSegment> segments;  // of the arena (update_segments.h)
};

// `metrics_per_rank`, `gather_per_rank`: float64 numbers that every rank has there to itself;
// `totals`: numbers that are summed, in front of them. Throws Error(kInvalid) for an option that
// cannot be obeyed, saying why.
struct DesignInput {
  const engine::Graph* graph = nullptr;
  engine::UpdateRule rule;
  std::vector<int> host;  // of each rank
  // The planner's answer to `question`. Without, direct on one host and rings between hosts, and
  // fused where that can be.
  const StepPrices* prices = nullptr;
  bool unlike = false;  // the ranks' processors
  bool queued = false;  // sums are queued on a device; those of the host's numbers are its own
  // Of collectives/algorithms/vendor_sum.h: the one that serves these ranks, taken unless something
  // else is asked for; or why none does, as the end of a sentence that begins with the name.
  std::string vendor = {}, no_vendor = {};
  std::size_t totals = 0, metrics_per_rank = 0, gather_per_rank = 0;
};
StepDesign design_step(const DesignInput& input, const DesignOptions& options);

// The same without plans: what is chosen, and why, for buckets alone. For clusters that nobody need
// have, where plans would be large.
StepDesign choose_step(const DesignInput& input, const DesignOptions& options);

// Whether a vendor's library may make the sums where nothing else speaks against it.
bool allows_vendor_sums(const StepChoices& choices);

// Whether hosts have other processors than each other, or ranks other kinds of devices: these may
// give the same numbers other last bits.
bool unlike_processors(const collectives::Topology& topology);

// What the planner is to be asked: the algorithms of sums that no rule holds, and what the update
// of each bucket takes in both ways where it is not said which. No sums: nothing is to be chosen.
// Reads all of `input` but `prices`; throws as design_step does.
StepQuestion question(const DesignInput& input, const DesignOptions& options);

// "bucket 1 (conv1.weight conv1.bias)": the parameters that a bucket touches, for messages, which
// must have room for more than names: "bucket 1 (conv1.weight conv1.bias ... and 37 more)".
std::string bucket_name(std::size_t index, engine::Range bucket, const engine::Graph& graph);

// "all-reduce: direct, update fused, 2 buckets of up to 4 MiB: 0.98 ms predicted for ..." in the
// first line, then lines with reasons: "reason: ...", "update: fused, because ...".
std::string sentence(const StepDesign& design);

}  // namespace lockstep::strategies
