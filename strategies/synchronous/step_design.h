// SPDX-License-Identifier: MIT
// All collectives of a training step as one step plan: the buckets, the algorithms, and the update,
// fused into the reduction or separate from it. A pure function of the graph's layout and the
// options, so all processes get the same; ranks compare its hash at the start.
//
// Buckets: gradients become final in ascending order of the arena. A bucket is a span of it that
// ends at the first multiple of engine::kBlock with at least `bucket_bytes`. Its collective can
// start when backward has passed its end.
//
// Algorithms: each sum of a step gets its algorithm by its bytes, from a rule or from the planner.
// With one replica nothing is sent, and the planner is not asked. `design_step` describes the
// choice of the update.
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

// Default size of a bucket, except for sums queued on one host (step_design.cpp).
inline constexpr std::size_t kBucketBytes = std::size_t(4) << 20;

// Holds the choices of a run, and those that a checkpoint's plan adds (plan_record.h).
struct DesignOptions {
  StepChoices step = {};
  std::vector<std::size_t> bucket_ends = {};  // ends of these buckets
  // The run's rule. If a checkpoint's plan was made for another rule, the update's place is chosen
  // again.
  std::optional<engine::UpdateRule> rule = {};
  std::string reason = {};                                // reason for the recorded algorithm
  std::optional<collectives::AlgorithmRules> asked = {};  // algorithm requested in the recorded run
  std::string update_reason = {};                         // reason for the recorded update
};

struct StepDesign {
  // The algorithm of all buckets; if they differ, it has rules in the format of size_rules.h.
  std::string algorithm;
  Update update = Update::kFused;
  engine::Kernels kernels = engine::Kernels::kAuto;
  std::optional<engine::DType> wire;  // gradients between hosts; default: their own type
  Reason reason;                      // reason for the algorithm
  // "4 MiB: 0.98 ms predicted (next: ring, 1.57 ms)"; empty: no prediction.
  std::string predicted;
  Reason update_reason;                           // reason for the update's place
  engine::UpdateRule rule;                        // the rule of this design
  engine::DType dtype = engine::DType::kFloat32;  // type of weights and gradients
  // Rules for all sums of the step, which reproduce this step if requested.
  std::string rules;
  collectives::AlgorithmRules asked;
  std::size_t bucket_bytes = 0;
  std::vector<engine::Range> buckets;
  // By bucket: names of collectives/algorithms/registry.h.
  std::vector<std::string> algorithms;
  // Algorithms of the other sums that no bucket uses.
  std::vector<std::string> other_algorithms;

  collectives::StepPlan plan;
  struct Stages {                 // indices into `plan`
    std::vector<int> reductions;  // layer reductions, by point
    // Stages that a bucket's gradients start, in order.
    std::vector<std::vector<int>> buckets;
    // The last stage of each bucket, after which its weights are new.
    std::vector<int> updates;
    int metrics = -1;  // once per step: totals and checksums
    int gather = -1;   // outside of steps: all ranks' numbers
    // Sums of statistics, outside of steps; -1: there are none.
    int statistics = -1;
    // Weights of rank 0 to all, before the first step.
    int start = -1;
    // Stages before this one can be in flight at once.
    std::size_t of_step = 0;
  } stages;

  // Holds positions in the exchange space, in float64 elements, and sizes of spaces.
  struct Layout {
    std::vector<engine::Range> points;  // layer reductions
    // `statistics` includes the number of ranks that count.
    engine::Range statistics, metrics, gather;
    std::size_t exchange_bytes = 0, scratch_bytes = 0, norms_bytes = 0;
    std::size_t norm_blocks = 0;
  } space;
  std::vector<engine::UpdateSegment> segments;  // segments of the arena (update_segments.h)
};

// Holds the input of a design. `metrics_per_rank`, `gather_per_rank`: each rank's own float64
// numbers; `totals`: numbers before them that are summed.
struct DesignInput {
  const engine::Graph* graph = nullptr;
  engine::UpdateRule rule;
  std::vector<int> host;  // by rank
  // The planner's answer to `question`. Null: direct on one host, rings between hosts, and fused
  // updates if possible.
  const StepPrices* prices = nullptr;
  bool unlike = false;  // the ranks' processors differ
  // Sums are queued on a device; the host sums its own numbers.
  bool queued = false;
  // The sum of collectives/algorithms/vendor_sum.h for these ranks, which is the default. If there
  // is none, `no_vendor` is the reason, as the end of a sentence that begins with the name.
  std::string vendor = {}, no_vendor = {};
  std::size_t totals = 0, metrics_per_rank = 0, gather_per_rank = 0;
};
// Throws Error(kInvalid), with the reason, if an option cannot be satisfied.
//
// All buckets have the update in the same place. It is separate for all if a bucket's requested
// algorithm cannot fuse it. It is also separate for norms that must be known first between hosts,
// and for layer norms, which each rank computes from complete sums. Otherwise the planner predicts
// the time of both ways, each with its fastest algorithms: the sequential time of all buckets' sums
// and updates. Separate is chosen if it saves more than a tenth. Fused updates keep mirrors equal
// by construction, and optimizer state exists once. If processors differ only fused updates keep
// mirrors equal, so fused is always chosen.
StepDesign design_step(const DesignInput& input, const DesignOptions& options);

// Returns the same without plans: the choices and reasons for buckets alone. For hypothetical
// clusters, whose plans would be large.
StepDesign choose_step(const DesignInput& input, const DesignOptions& options);

// Returns whether a vendor's library may make the sums if nothing else prevents it.
bool allows_vendor_sums(const StepChoices& choices);

// Returns whether hosts have different processors, or ranks different kinds of devices. These may
// round the same numbers differently.
bool unlike_processors(const collectives::Topology& topology);

// Returns the question for the planner: the algorithms of sums without a rule, and the times of
// both ways to update each bucket if the way is open. Without sums nothing is to be chosen. Reads
// all of `input` except `prices`; throws like design_step.
StepQuestion question(const DesignInput& input, const DesignOptions& options);

// Returns the parameters that a bucket touches, for messages: "bucket 1 (conv1.weight conv1.bias)".
// Long lists are clipped: "bucket 1 (conv1.weight conv1.bias ... and 37 more)".
std::string bucket_name(std::size_t index, engine::Range bucket, const engine::Graph& graph);

// Returns lines like "all-reduce: direct, update fused; 4 MiB: ...", "buckets: 2 of up to 4 MiB",
// "reason: ..." and "update: fused, because ...". `recorded`: a checkpoint's plan made the choices.
std::string sentence(const StepDesign& design, bool recorded = false);

}  // namespace lockstep::strategies
