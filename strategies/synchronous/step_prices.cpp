// SPDX-License-Identifier: MIT
#include "strategies/synchronous/step_prices.h"

#include <algorithm>
#include <array>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/registry.h"

namespace lockstep::strategies {
namespace {

using collectives::Algorithm;
using collectives::Choices;
using collectives::Plan;
using collectives::Request;
using Rules = std::vector<collectives::SizeRule>;

std::string never_refused(const std::vector<int>& /*host*/) {
  return {};
}

// Wrap the plans of an update as algorithms, so that their times are predicted alike.
constexpr std::array kUpdate{
    Algorithm{.name = "local", .refusal = never_refused, .make = collectives::local_update}};
constexpr std::array kSquares{
    Algorithm{.name = "local", .refusal = never_refused, .make = collectives::local_squares}};

// Returns the first half of a fused update that needs the norm of all gradients: the sums with
// their squares. The second half is the update, when all squares are known. Only direct supports
// this.
Plan sum_with_squares(const Request& request) {
  Request sum = request;
  sum.squares = true;
  return collectives::direct_reduce_scatter(sum);
}
constexpr std::array kFirstHalf{
    Algorithm{.name = "direct", .refusal = collectives::direct_refusal, .make = sum_with_squares}};
constexpr std::array kSecondHalf{Algorithm{.name = "direct",
                                           .refusal = collectives::direct_refusal,
                                           .make = collectives::direct_update_and_store}};

// Returns the rules that match a bucket. The others may name algorithms that cannot fuse an update.
Rules of_buckets(const StepQuestion& question) {
  Rules rules;
  for (const collectives::SizeRule& rule : question.rules)
    if (std::ranges::any_of(question.buckets, [&](std::size_t bytes) {
          return rule.from <= bytes && bytes < rule.to;
        }))
      rules.push_back(rule);
  return rules;
}

}  // namespace

double UpdateWay::seconds(std::size_t bytes) const {
  double seconds = sums.choose(bytes).seconds;
  for (const Choices& step : after) seconds += step.choose(bytes).seconds;
  return seconds;
}

StepPrices price_step(const collectives::Topology& topology, const engine::UpdateRule& rule,
                      const StepQuestion& question, collectives::Bootstrap* together) {
  // The size is in units of the weights' type.
  const std::size_t kept = engine::values_kept(rule, question.dtype) *
                           engine::size_of(engine::computed_in(question.dtype)) /
                           engine::size_of(question.dtype);
  const auto price = [&](std::span<const Algorithm> algorithms, const Rules& rules = {},
                         bool inside = false) {
    return plan_all_reduce(topology, algorithms, rules, question.buckets, together,
                           {.update = inside, .slots = kept, .wire = question.wire});
  };
  const auto all = collectives::all_reduce_algorithms();
  StepPrices prices{{plan_all_reduce(topology, all, question.rules, question.sums, together,
                                     {.wire = question.wire})},
                    {}};
  if (question.buckets.empty()) return prices;
  if (rule.needs() == engine::Needs::kLayerNorms) {  // squares of gradients and of weights
    prices.separate.after = {price(kSquares), price(kSquares), price(kUpdate)};
    return prices;
  }
  if (rule.needs_squares()) {
    prices.separate.after = {price(kSquares), price(kUpdate)};
    prices.fused = {price(kFirstHalf), {price(kSecondHalf)}};
    return prices;
  }
  std::vector<Algorithm> able;
  for (const Algorithm& algorithm : all)
    if (algorithm.updates) able.push_back(algorithm);
  prices.separate.after = {price(kUpdate)};
  prices.fused = {price(able, of_buckets(question), true), {}};
  return prices;
}

}  // namespace lockstep::strategies
