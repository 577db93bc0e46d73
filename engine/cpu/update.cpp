// SPDX-License-Identifier: MIT
// Up to four gradients are added in registers; more are added block by block in memory that stays
// in the L1 cache.
//
// Weights of bfloat16 have masters in float32. All arithmetic uses the masters, and the targets
// receive the new master, rounded.
#include "engine/cpu/update.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "engine/cpu/combine.h"
#include "engine/cpu/update_kernels.h"

namespace lockstep::engine::cpu {
namespace {

constexpr std::size_t kMostInRegisters = 4;  // gradients

UpdateFormula formula_of(const UpdateRule& rule) {
  if (rule.kind == UpdateKind::kLars) return UpdateFormula::kLars;
  if (rule.kind != UpdateKind::kSgd) return UpdateFormula::kAdam;
  return rule.momentum != 0 ? UpdateFormula::kMomentum : UpdateFormula::kPlain;
}

// Returns the rule's terms in double precision.
UpdateTerms terms_of(const ReduceArguments& a) {
  const UpdateRule& rule = *a.update.rule;
  const double decay = a.update.decays ? rule.weight_decay : 0.0;
  UpdateTerms terms{.scale = gradient_scale(a), .rate = a.update.state->rate, .decay = decay};
  terms.momentum = rule.momentum;
  terms.of_gradient = rule.nesterov ? 1 : 0;
  terms.of_velocity = rule.nesterov ? rule.momentum : 1;
  if (rule.kind == UpdateKind::kLars) terms.rate = a.update.state->rate * local_rate_of(a);
  if (rule.kind != UpdateKind::kAdam && rule.kind != UpdateKind::kAdamW) return terms;
  const double t = double(updates_before(a)) + 1;
  terms.epsilon = rule.epsilon;
  terms.beta1 = rule.beta1, terms.beta2 = rule.beta2;
  terms.rest1 = 1 - rule.beta1, terms.rest2 = 1 - rule.beta2;
  if (rule.kind == UpdateKind::kAdamW) terms.decay = 0, terms.shrink = a.update.state->rate * decay;
  terms.rate = a.update.state->rate / (1 - std::pow(rule.beta1, t));
  terms.correct2 = 1 / (1 - std::pow(rule.beta2, t));
  return terms;
}

// Runs an update in whole groups and parts of groups.
class UpdatePieces {
 public:
  explicit UpdatePieces(const ReduceArguments& a)
      : a_(a),
        size_(size_of(a.dtype)),
        computed_(std::max(size_, sizeof(float))),
        group_shift_(std::countr_zero(kGroupBytes / computed_)),
        slots_(a.update.rule->slots()) {
    groups_.dtype = a.dtype;
    groups_.formula = formula_of(*a.update.rule);
    groups_.terms = terms_of(a);
  }

  // Updates elements [at, at + count) of targets, old weights and slots. The gradients begin at
  // element `at`. `added`: they are a single sum in the type of computation.
  void run(std::span<const std::byte* const> from, bool added, std::size_t at, std::size_t count) {
    from_ = from, groups_.added = added, groups_.sources = from.size(), begin_ = at;
    source_ = added ? computed_ : size_;
    Targets all{a_.to, at * size_, a_.update.weight + at * size_, a_.stream};
    const auto border = a_.stream ? elements_to_border(all, size_) : std::nullopt;
    const std::size_t lead = std::min(border.value_or(0), count);
    const std::size_t whole = (count - lead) >> group_shift_;
    const std::size_t rest = lead + (whole << group_shift_);
    if (lead > 0) part(at, lead);
    if (whole > 0) {
      point(at + lead);
      all.first += lead * size_, all.own += lead * size_, all.stream = border.has_value();
      groups_.targets = all;
      groups_.groups = whole;
      update_groups(groups_);
    }
    if (rest < count) part(at + rest, count - rest);
  }

 private:
  void point(std::size_t at) {
    for (std::size_t s = 0; s < from_.size(); ++s)
      groups_.from[s] = from_[s] + (at - begin_) * source_;
    groups_.weight = a_.update.weight + at * size_;
    if (has_master(a_.dtype)) groups_.master = a_.update.master + at * computed_;
    for (std::size_t s = 0; s < slots_; ++s) groups_.slots[s] = a_.update.slots[s] + at * computed_;
  }

  // Updates less than a group, through groups in local memory.
  [[gnu::noinline]] void part(std::size_t at, std::size_t count) {
    LocalGroup sources[kMostInRegisters]{}, slots[UpdateRule::kMaxSlots]{}, weight{}, master{};
    LocalGroup result;
    point(at);
    const UpdateGroups there = groups_;
    for (std::size_t s = 0; s < from_.size(); ++s)
      groups_.from[s] = copy(sources[s], there.from[s], count * source_);
    for (std::size_t s = 0; s < slots_; ++s)
      groups_.slots[s] = copy(slots[s], there.slots[s], count * computed_);
    if (there.master != nullptr) {
      groups_.master = copy(master, there.master, count * computed_);
    } else {
      groups_.weight = copy(weight, there.weight, count * size_);
    }
    std::byte* const to[] = {result.bytes};
    groups_.targets = {.to = to};
    groups_.groups = 1;
    update_groups(groups_);
    for (std::size_t s = 0; s < slots_; ++s)
      std::memcpy(there.slots[s], slots[s].bytes, count * computed_);
    if (there.master != nullptr) std::memcpy(there.master, master.bytes, count * computed_);
    for (std::byte* const target : a_.to)
      std::memcpy(target + at * size_, result.bytes, count * size_);
  }

  static std::byte* copy(LocalGroup& to, const std::byte* from, std::size_t bytes) {
    std::memcpy(to.bytes, from, bytes);
    return to.bytes;
  }

  const ReduceArguments& a_;
  std::size_t size_, computed_, source_ = 0;  // bytes of an element
  int group_shift_;                           // log2 of the elements of a group
  std::size_t slots_, begin_ = 0;             // begin_: first element of the gradients
  std::span<const std::byte* const> from_;
  UpdateGroups groups_;
};

struct alignas(64) UpdateBlock {
  std::array<std::byte, kBlock * sizeof(double)> bytes;
};

// Updates with more gradients than registers hold, block by block.
void update_blocks(const ReduceArguments& whole) {
  UpdateBlock sums;
  std::byte* const to[] = {sums.bytes.data()};
  const std::byte* const from[] = {sums.bytes.data()};
  UpdatePieces pieces(whole);
  for (std::size_t at = 0; at < whole.count; at += kBlock) {
    const std::size_t count = std::min(kBlock, whole.count - at);
    combine({.source = whole.dtype,
             .target = computed_in(whole.dtype),
             .from = whole.from,
             .to = to,
             .read_at = at,
             .count = count});
    pieces.run(from, true, at, count);
  }
}

}  // namespace

void update(const ReduceArguments& arguments) {
  if (is_skipped(arguments)) return;
  if (arguments.from.size() > kMostInRegisters) return update_blocks(arguments);
  UpdatePieces(arguments).run(arguments.from, false, 0, arguments.count);
}

}  // namespace lockstep::engine::cpu
