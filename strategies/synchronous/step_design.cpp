// SPDX-License-Identifier: MIT
#include "strategies/synchronous/step_design.h"

#include <algorithm>
#include <map>
#include <set>

#include "collectives/algorithms/registry.h"
#include "collectives/algorithms/vendor_sum.h"
#include "collectives/cost/size_rules.h"
#include "engine/base/error.h"
#include "engine/base/quantity.h"
#include "strategies/synchronous/algorithm_words.h"
#include "strategies/synchronous/step_plans.h"

namespace lockstep::strategies {
namespace {

using collectives::SizeRule;
using engine::kBlock;
using engine::Range;
using engine::require;

// Maximum ratio of fused to separate time at which fused is still preferred.
constexpr double kNear = 1.1;

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Returns the buckets that a checkpoint was written with.
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

class Designer {
 public:
  Designer(const DesignInput& input, const DesignOptions& options)
      : input_(input),
        options_(options),
        graph_(*input.graph),
        hosts_(std::set<int>(input.host.begin(), input.host.end()).size()) {
    choose_vendor();
    if (vendor_.empty()) rules_ = options_.step.algorithm;
    for (const SizeRule& rule : rules_.rules()) {
      const std::string refusal = collectives::find_algorithm(rule.algorithm).refusal(input_.host);
      require(refusal.empty(), "algorithm {} {}; this job has {} hosts: use auto", rule.algorithm,
              refusal, hosts_);
    }
    require(!needs_layer_norms() || input_.rule.clip_norm == 0,
            "lars with clip_norm {}: lars makes gradients that are too long short layer by layer; "
            "leave clip_norm out",
            input_.rule.clip_norm);
    design_.dtype = graph_.dtype();
    design_.rule = input_.rule;
    check_wire();
    if (narrow_wire()) design_.wire = options_.step.wire;
    design_.bucket_bytes =
        options_.step.bucket_bytes > 0 ? options_.step.bucket_bytes : usual_bucket();
    design_.buckets = options_.bucket_ends.empty()
                          ? cut_buckets(graph_.trainable(), design_.bucket_bytes, width())
                          : buckets_of(options_.bucket_ends, graph_.trainable());
    lay_out_exchange();
    why_separate_ = find_why_separate();
    // A checkpoint's update is dropped if an option now requires it to be separate.
    if (!why_separate_.empty() && !options_.update_reason.empty())
      options_.step.update = Update::kAutomatic, options_.update_reason.clear();
    check_update();
  }

  StepQuestion question() const {
    StepQuestion question;
    if (input_.host.size() == 1 || !vendor_.empty()) return question;
    std::set<std::size_t> sums, buckets;
    const auto add = [&](std::size_t bytes) {
      if (bytes > 0 && rules_.find(bytes) == nullptr) sums.insert(bytes);
    };
    for (const Range& bucket : design_.buckets) {
      const std::size_t bytes = bytes_of(bucket);
      add(bytes);
      const bool chosen = rules_.find(bytes) == nullptr && options_.step.update == Update::kFused;
      if (chosen || update_is_open()) buckets.insert(bytes);
    }
    sums.insert(buckets.begin(), buckets.end());
    for (const Range& point : design_.space.points) add(point.size() * sizeof(double));
    add(design_.space.statistics.size() * sizeof(double));
    add(design_.space.metrics.size() * sizeof(double));
    add(design_.space.gather.size() * sizeof(double));
    add(bytes_of({0, graph_.parameters()}));
    question.sums.assign(sums.begin(), sums.end());
    question.buckets.assign(buckets.begin(), buckets.end());
    question.rules = rules_.rules();
    question.dtype = graph_.dtype();
    question.wire = wire();
    return question;
  }

  StepDesign choices() {
    choose();
    return std::move(design_);
  }

  StepDesign run() {
    choose();
    add_plans(input_, {vendor_, wire(), [this](std::size_t bytes) { return algorithm_of(bytes); }},
              design_);
    design_.rules = vendor_.empty() ? rules_text(chosen_) : vendor_;
    const std::set<std::string> of_buckets(design_.algorithms.begin(), design_.algorithms.end());
    std::set<std::string> others;
    for (const auto& [bytes, name] : chosen_)
      if (!of_buckets.contains(name)) others.insert(name);
    design_.other_algorithms.assign(others.begin(), others.end());
    return std::move(design_);
  }

 private:
  // Drops a checkpoint's choice that is impossible here; throws for an explicit one.
  void choose_vendor() {
    const std::string_view algorithm = options_.step.algorithm.only();
    if (!collectives::is_vendor_sum(algorithm)) {
      if (allows_vendor_sums(options_.step)) vendor_ = input_.vendor;
      return;
    }
    if (!input_.vendor.empty()) {
      require(!narrow_wire(),
              "wire bfloat16 with algorithm {}: it sends gradients as they are; leave one out",
              algorithm);
      vendor_ = algorithm;
      return;
    }
    const bool recorded = options_.asked && *options_.asked != options_.step.algorithm;
    require(recorded, "algorithm {} {}: use auto", algorithm, input_.no_vendor);
    options_.step.algorithm = *options_.asked;
    options_.reason.clear();
  }

  void choose() {
    choose_update();
    choose_algorithms();
    design_.kernels = options_.step.kernels.value_or(engine::Kernels::kAuto);
    design_.asked = options_.asked.value_or(options_.step.algorithm);
  }

  std::size_t width() const { return engine::size_of(graph_.dtype()); }
  std::size_t bytes_of(Range bucket) const { return bucket.size() * width(); }

  // Queued sums on one host are cheap, and backward hides all but the last, so buckets are smaller.
  std::size_t usual_bucket() const {
    if (!input_.queued || hosts_ > 1) return kBucketBytes;
    return std::clamp(graph_.trainable() * width() / 8, kBucketBytes / 8, kBucketBytes);
  }
  bool needs_norm() const { return input_.rule.needs_squares(); }
  bool needs_layer_norms() const { return input_.rule.needs() == engine::Needs::kLayerNorms; }

  struct Picked {
    std::string algorithm;
    Reason why;
    std::string predicted = {};
  };

  // Asks the planner's `choices` if no rule decides; null: no planner.
  Picked pick(std::size_t bytes, const collectives::Choices* choices) const {
    const std::size_t ranks = input_.host.size();
    if (const SizeRule* rule = rules_.find(bytes)) return {rule->algorithm, Reason::asked()};
    if (ranks == 1) return {"direct", "there is one replica, so nothing has to be sent"};
    if (choices == nullptr)
      return {hosts_ == 1 ? "direct" : "ring",
              fmt::format("{} are on {}", engine::count_text(ranks, "replica"),
                          engine::count_text(std::uint64_t(hosts_), "host"))};
    const collectives::Choice choice = choices->choose(bytes);
    return {choice.algorithm, choice.reason, prediction(choice, choices != choices_of_sums())};
  }

  const collectives::Choices* choices_of_sums() const {
    return input_.prices == nullptr ? nullptr : &input_.prices->separate.sums;
  }
  const collectives::Choices* choices_of_buckets() const {
    const bool fused = design_.update == Update::kFused && input_.prices != nullptr;
    return fused && input_.prices->fused ? &input_.prices->fused->sums : choices_of_sums();
  }

  const std::string& algorithm_of(std::size_t bytes) {
    const auto [at, fresh] = chosen_.try_emplace(bytes);
    if (fresh) at->second = pick(bytes, choices_of_sums()).algorithm;
    return at->second;
  }

  // Chooses the algorithms of buckets; those of other sums follow as they are added.
  void choose_algorithms() {
    if (!vendor_.empty()) {
      design_.algorithms.assign(design_.buckets.size(), vendor_);
      design_.algorithm = vendor_;
      design_.reason =
          vendor_ == options_.step.algorithm.only()
              ? Reason::asked()
              : "it is what adds between GPUs of several processes, each with one of its own";
      if (!options_.reason.empty()) design_.reason = options_.reason;
      return;
    }
    std::vector<Picked> picked;  // one entry per algorithm
    for (const Range& bucket : design_.buckets) {
      Picked mine = pick(bytes_of(bucket), choices_of_buckets());
      chosen_[bytes_of(bucket)] = mine.algorithm;
      design_.algorithms.push_back(mine.algorithm);
      if (std::ranges::find(picked, mine.algorithm, &Picked::algorithm) == picked.end())
        picked.push_back(std::move(mine));
    }
    if (picked.empty()) picked.push_back(pick(0, nullptr));
    if (picked.size() == 1) {
      design_.algorithm = picked[0].algorithm;
      design_.reason = picked[0].why;
      design_.predicted = picked[0].predicted;
    } else {
      design_.algorithm = rules_text(chosen_);
      for (const Picked& one : picked) design_.reason.add(one.algorithm, one.why);
    }
    if (!options_.reason.empty()) design_.reason = options_.reason;
  }

  const char* first() const {
    return input_.rule.clip_norm > 0
               ? "of a clipped norm all must know first"
               : "that all gradients are finite all must know first, for the loss scale";
  }

  // Returns why updates cannot be fused, as the end of a sentence; empty if they can.
  std::string find_why_separate() const {
    if (!vendor_.empty()) return fmt::format("{} adds, and has no place for it", vendor_);
    if (needs_layer_norms())
      return "lars needs the norms of whole weights and of their gradients first, which are known "
             "when all are summed";
    for (const Range& bucket : design_.buckets) {
      const SizeRule* const rule = rules_.find(bytes_of(bucket));
      if (rule == nullptr) {
        if (needs_norm() && hosts_ > 1)
          return fmt::format("{}, which direct alone can wait for, on one host", first());
        continue;
      }
      if (!collectives::find_algorithm(rule->algorithm).updates)
        return fmt::format("it needs an algorithm that has a place for it, and {} has none",
                           rule->algorithm);
      if (needs_norm() && rule->algorithm != "direct")
        return fmt::format("{}, which direct alone can wait for, and {} was chosen", first(),
                           rule->algorithm);
    }
    return {};
  }

  void check_wire() const {
    if (!options_.step.wire) return;
    require(*options_.step.wire == engine::DType::kFloat32 || narrow_wire(),
            "unknown wire '{}'; known: float32, bfloat16", engine::name(*options_.step.wire));
    require(graph_.dtype() == engine::DType::kFloat32,
            "wire {} is for gradients of float32, and those of this run are {}, as which they "
            "travel: leave it out, or train in float32",
            engine::name(*options_.step.wire), engine::name(graph_.dtype()));
  }
  bool narrow_wire() const { return options_.step.wire == engine::DType::kBFloat16; }
  // Returns the type of buckets' sums between hosts; nothing on one host.
  std::optional<engine::DType> wire() const { return hosts_ == 1 ? std::nullopt : design_.wire; }

  bool update_is_open() const {
    return options_.step.update == Update::kAutomatic && why_separate_.empty();
  }

  void check_update() const {
    require(options_.step.update != Update::kFused || why_separate_.empty(),
            "update fused: {}: use separate", why_separate_);
  }

  // Returns the predicted sequential time.
  double seconds_of_buckets(const UpdateWay& way) const {
    double seconds = 0;
    for (const Range& bucket : design_.buckets) seconds += way.seconds(bytes_of(bucket));
    return seconds;
  }

  void choose_update() {
    const bool open = update_is_open();
    const bool asked = options_.step.update != Update::kAutomatic;
    design_.update = asked ? options_.step.update : open ? Update::kFused : Update::kSeparate;
    if (!options_.update_reason.empty()) {
      design_.update_reason = options_.update_reason;
    } else if (asked) {
      design_.update_reason = Reason::asked();
    } else if (!open) {
      design_.update_reason = why_separate_;
    } else if (input_.prices == nullptr || !input_.prices->fused) {
      design_.update_reason =
          input_.host.size() == 1 ? "there is one replica" : "nothing was priced";
    } else {
      weigh_updates();
    }
  }

  void weigh_updates() {
    const double fused = seconds_of_buckets(*input_.prices->fused);
    const double separate = seconds_of_buckets(input_.prices->separate);
    design_.update =
        input_.unlike || fused <= kNear * separate ? Update::kFused : Update::kSeparate;
    std::string why =
        fmt::format("the sums and updates of a step are predicted to take {} fused, {} separate",
                    collectives::time_text(fused), collectives::time_text(separate));
    if (design_.update == Update::kFused && fused > separate)
      why += input_.unlike
                 ? "; the processors differ, so each weight is updated once for all replicas"
                 : "; the difference is small, so each weight is updated once for all replicas";
    design_.update_reason = std::move(why);
  }

  // Layer reductions come first; each range begins at a block.
  void lay_out_exchange() {
    const std::size_t ranks = input_.host.size();
    std::size_t numbers = 0;
    auto take = [&](std::size_t count) {
      const Range range{numbers, numbers + count};
      numbers = round_up(range.end, kBlock);
      return range;
    };
    for (const engine::ReductionSpec& point : graph_.reductions())
      design_.space.points.push_back(take(point.count));
    design_.space.statistics =
        take(graph_.statistics().empty() ? 0 : graph_.statistics().back().range.end + 1);
    design_.space.metrics = take(input_.totals + ranks * input_.metrics_per_rank);
    design_.space.gather = take(ranks * input_.gather_per_rank);
    design_.space.exchange_bytes = numbers * sizeof(double);
  }

  const DesignInput& input_;
  DesignOptions options_;
  const engine::Graph& graph_;
  std::size_t hosts_;
  std::string vendor_;  // library that makes the sums; empty: ours
  collectives::AlgorithmRules rules_;
  std::string why_separate_;
  StepDesign design_;
  std::map<std::size_t, std::string> chosen_;  // by bytes, so far
};

}  // namespace

bool allows_vendor_sums(const StepChoices& choices) {
  return choices.algorithm.automatic() && choices.update != Update::kFused &&
         choices.wire != engine::DType::kBFloat16;
}

StepDesign design_step(const DesignInput& input, const DesignOptions& options) {
  return Designer(input, options).run();
}

StepDesign choose_step(const DesignInput& input, const DesignOptions& options) {
  return Designer(input, options).choices();
}

StepQuestion question(const DesignInput& input, const DesignOptions& options) {
  return Designer(input, options).question();
}

}  // namespace lockstep::strategies
