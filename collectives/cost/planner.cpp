// SPDX-License-Identifier: MIT
#include "collectives/cost/planner.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "collectives/bootstrap/outcome.h"
#include "collectives/cost/reason.h"
#include "engine/base/error.h"
#include "engine/base/hash.h"

namespace lockstep::collectives {
namespace {

using engine::require;

constexpr std::size_t kSmallestPlanned = 256, kLargestPlanned = std::size_t(256) << 20;

// Returns the process that predicts item k. Items are assigned forward and backward alternately, so
// that no process always has the same algorithm.
int process_of(std::size_t k, int processes) {
  const auto all = std::size_t(processes);
  const std::size_t place = k % all;
  return int(k / all % 2 == 0 ? place : all - 1 - place);
}

using Prices = std::vector<std::vector<Price>>;                    // [size][algorithm]
using Firsts = std::vector<std::vector<std::size_t>>;              // likewise: Choices::first_alike
using ToPrice = std::vector<std::pair<std::size_t, std::size_t>>;  // size, algorithm

// Returns each distinct plan once, the largest sizes first, since they take longest.
ToPrice to_price(const Firsts& first) {
  ToPrice list;
  for (std::size_t size = first.size(); size-- > 0;)
    for (std::size_t i = 0; i < first[size].size(); ++i)
      if (first[size][i] == i) list.emplace_back(size, i);
  return list;
}

// Reads the predictions of all processes. Each of the texts has the part of a process.
void read_prices(const std::vector<std::string>& all, const ToPrice& list, Prices& prices) {
  std::vector<std::size_t> at(all.size(), 0);
  for (std::size_t k = 0; k < list.size(); ++k) {
    const auto process = std::size_t(process_of(k, int(all.size())));
    engine::invariant(at[process] + sizeof(Price) <= all[process].size(),
                      "a process told of fewer prices than are its part");
    std::memcpy(&prices[list[k].first][list[k].second], all[process].data() + at[process],
                sizeof(Price));
    at[process] += sizeof(Price);
  }
}

// Returns whether the algorithm is an all-reduce of the registry. Trials do not apply to other
// collectives, even if they have such a name.
bool is_tried(const Algorithm& algorithm) {
  const auto all = all_reduce_algorithms();
  return std::any_of(all.begin(), all.end(),
                     [&](const Algorithm& known) { return known.make == algorithm.make; });
}

Prices prices(const Topology& topology, const std::vector<const Algorithm*>& able,
              const std::vector<std::size_t>& sizes, const Firsts& first, Bootstrap* together,
              const PriceOptions& priced) {
  static_assert(std::is_trivially_copyable_v<Price>);
  Prices prices(sizes.size(), std::vector<Price>(able.size()));
  const ToPrice list = to_price(first);
  const int processes = together == nullptr ? 1 : together->processes();
  const auto mine = [&] {
    std::string text;
    std::size_t done = 0;
    for (std::size_t k = 0; k < list.size(); ++k) {
      if (processes > 1 && process_of(k, processes) != together->process()) continue;
      if (priced.progress) priced.progress(done++, list.size() / std::size_t(processes));
      const auto [size, i] = list[k];
      Price price = collectives::price(*able[i], topology, sizes[size], priced);
      if (is_tried(*able[i])) {
        price.trial = trial_factor(topology.trials, able[i]->name, double(sizes[size]));
        price.seconds *= price.trial;
      }
      prices[size][i] = price;
      text.append(reinterpret_cast<const char*>(&price), sizeof(Price));
    }
    return text;
  };
  if (processes > 1)
    read_prices(all_or_none(*together, "prices of all-reduces", mine), list, prices);
  else
    mine();
  for (std::size_t size = 0; size < sizes.size(); ++size)
    for (std::size_t i = 0; i < able.size(); ++i) prices[size][i] = prices[size][first[size][i]];
  // The influence of trials fades after the last one, but more bytes never take less time.
  for (std::size_t size = 1; size < sizes.size() && !topology.trials.empty(); ++size)
    for (std::size_t i = 0; i < able.size(); ++i) {
      Price& price = prices[size][i];
      const double least = prices[size - 1][i].seconds;
      if (price.seconds < least) price.trial *= least / price.seconds, price.seconds = least;
    }
  return prices;
}

// The fraction of a time from which half of the rounds matter: half of it is the width of a tie.
constexpr double kRoundsMatter = 0.2;

// Returns whether `a` needs at most half of the rounds of `b`, and these matter. Each round waits
// for the slowest rank. A trial hides this if one rank leaves the barrier before it a full round
// after the others.
bool half_the_rounds(const Price& a, const Price& b) {
  return 2 * a.rounds <= b.rounds && b.round_seconds >= kRoundsMatter * b.seconds / b.trial;
}

// Returns whether `a` sends at most half of b's messages. They cost processor time even if no rank
// waits for them.
bool half_the_messages(const Price& a, const Price& b) {
  return 2 * a.messages <= b.messages;
}

// Returns whether `a` is preferred to an earlier `b` that takes as long.
bool is_preferred(const Price& a, const Price& b) {
  if (b.messages == 0) return false;
  return half_the_rounds(a, b) || (half_the_messages(a, b) && !half_the_rounds(b, a));
}

}  // namespace

std::string time_text(double seconds) {
  if (seconds < 0.0995e-6) return fmt::format("{:.2g} ns", seconds * 1e9);
  if (seconds < 0.99995e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 0.99995) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

std::vector<std::size_t> planned_sizes() {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = kSmallestPlanned; bytes <= kLargestPlanned; bytes *= 2)
    sizes.push_back(bytes);
  return sizes;
}

Choices plan_all_reduce(const Topology& topology, std::span<const Algorithm> algorithms,
                        const std::vector<SizeRule>& rules, std::vector<std::size_t> sizes,
                        Bootstrap* together, const PriceOptions& priced) {
  require(!topology.ranks.empty(), "a topology without ranks has nothing to reduce");
  require(!sizes.empty() && std::is_sorted(sizes.begin(), sizes.end()),
          "the sizes to be planned must ascend");
  Choices choices;
  choices.request_ = priced_request(topology, 0);
  choices.rules_ = rules;
  if (topology.costs_are == "measured" || !topology.trials.empty()) choices.alike_ = kAlikeMeasured;
  choices.sizes_ = std::move(sizes);
  const std::vector<int>& host = choices.request_.host;
  std::vector<const Algorithm*> able;
  for (const Algorithm& algorithm : algorithms) {
    std::string why = algorithm.refusal(host);
    if (why.empty()) {
      able.push_back(&algorithm);
      choices.algorithms_.emplace_back(algorithm.name);
      choices.same_.push_back(algorithm.same);
    } else {
      choices.refused_.push_back({std::string(algorithm.name), std::move(why)});
    }
  }
  for (const SizeRule& rule : rules) {
    const auto& known = choices.algorithms_;
    if (std::find(known.begin(), known.end(), rule.algorithm) != known.end()) continue;
    find_algorithm(rule.algorithm, algorithms);
    for (const Refusal& refusal : choices.refused_) {
      require(refusal.algorithm != rule.algorithm,
              "algorithm {} was asked for and cannot be: it {}", rule.algorithm, refusal.why);
    }
  }
  require(!able.empty(), "no algorithm can serve these ranks: {}",
          choices.refused_.empty() ? "none is given"
                                   : choices.refused_[0].algorithm + " " + choices.refused_[0].why);
  for (const std::size_t bytes : choices.sizes_)
    choices.first_.push_back(choices.first_alike(bytes));
  choices.prices_ = prices(topology, able, choices.sizes_, choices.first_, together, priced);
  return choices;
}

// Returns for each algorithm the number of the first with the same plan for so many bytes.
std::vector<std::size_t> Choices::first_alike(std::size_t bytes) const {
  Request request = request_;
  request.subject = priced_subject(bytes);
  std::vector<std::string_view> plans;  // names of their algorithms
  std::vector<std::size_t> first;
  for (std::size_t i = 0; i < algorithms_.size(); ++i) {
    const std::string_view same = same_[i] == nullptr ? "" : same_[i](request);
    plans.push_back(same.empty() ? algorithms_[i] : same);
    first.push_back(
        std::size_t(std::find(plans.begin(), plans.end(), plans.back()) - plans.begin()));
  }
  return first;
}

std::string Choices::same(std::size_t size, std::size_t algorithm) const {
  const std::size_t first = first_[size][algorithm];
  return first == algorithm ? std::string() : algorithms_[first];
}

std::vector<Price> Choices::prices_at(std::size_t bytes) const {
  const auto next =
      std::size_t(std::lower_bound(sizes_.begin(), sizes_.end(), bytes) - sizes_.begin());
  if (next == 0 || sizes_.size() == 1) return prices_.front();
  const std::size_t high = std::min(next, sizes_.size() - 1), low = high - 1;
  if (sizes_[high] == bytes) return prices_[high];
  const double part =
      (double(bytes) - double(sizes_[low])) / (double(sizes_[high]) - double(sizes_[low]));
  std::vector<Price> prices;
  for (std::size_t i = 0; i < algorithms_.size(); ++i)
    prices.push_back(along(prices_[low][i], prices_[high][i], part));
  return prices;
}

Choice Choices::choose(std::size_t bytes) const {
  const std::vector<Price> prices = prices_at(bytes);
  const auto priced = std::lower_bound(sizes_.begin(), sizes_.end(), bytes);
  const std::vector<std::size_t> first = priced != sizes_.end() && *priced == bytes
                                             ? first_[std::size_t(priced - sizes_.begin())]
                                             : first_alike(bytes);
  const std::size_t none = prices.size();
  // Returns the fastest of the distinct plans that differ from those of `but`; `none` if there is
  // none.
  const auto fastest = [&](const std::vector<std::size_t>& but) {
    std::size_t found = none;
    for (std::size_t i = 0; i < none; ++i)
      if (first[i] == i &&
          std::ranges::none_of(but, [&](auto other) { return first[other] == i; }) &&
          (found == none || prices[i].seconds < prices[found].seconds))
        found = i;
    return found;
  };
  Choice choice;
  choice.bytes = bytes;
  std::size_t chosen = fastest({});
  const double least = prices[chosen].seconds;
  for (std::size_t i = 0, found = none; i < none; ++i)
    if (first[i] == i && prices[i].seconds <= least * alike_ &&
        (found == none || is_preferred(prices[i], prices[found])))
      chosen = found = i;
  for (const SizeRule& rule : rules_) {
    if (bytes < rule.from || bytes >= rule.to) continue;
    choice.asked = true;
    chosen = std::size_t(std::find(algorithms_.begin(), algorithms_.end(), rule.algorithm) -
                         algorithms_.begin());
  }
  choice.algorithm = algorithms_[chosen];
  choice.seconds = prices[first[chosen]].seconds;
  std::vector<std::size_t> as_long{chosen};
  const std::size_t other = fastest(as_long);
  if (other < none) {
    choice.runner_up = algorithms_[other];
    choice.runner_up_seconds = prices[other].seconds;
  }
  if (choice.asked) {
    choice.reason = "it was asked for";
    if (other < none && choice.runner_up_seconds < choice.seconds)
      choice.reason += fmt::format("; {} would take {} instead of {}", choice.runner_up,
                                   time_text(choice.runner_up_seconds), time_text(choice.seconds));
  } else if (request_.host.size() == 1) {
    choice.reason = "there is one rank, so nothing has to be sent";
  } else if (other == none) {
    choice.reason = algorithms_.size() == 1 ? "no other algorithm can serve these ranks"
                                            : "all other algorithms make the same plan";
  } else {
    // Compare with the next algorithm that takes longer.
    std::size_t than = other;
    while (than < none && prices[than].seconds <= choice.seconds * alike_)
      as_long.push_back(than), than = fastest(as_long);
    const Price &mine = prices[chosen], &its = prices[other];
    if (than != other) {
      choice.reason = fmt::format("{} takes as long{}", choice.runner_up,
                                  alike_ > kAlike ? " (within 10 %)" : "");
      if (is_preferred(mine, its))
        choice.reason +=
            half_the_rounds(mine, its)
                ? fmt::format(", but needs {:.0f} communication rounds instead of {:.0f}",
                              its.rounds, mine.rounds)
                : fmt::format(", but sends {:.0f} messages instead of {:.0f}", its.messages,
                              mine.messages);
      else if (prices[other].seconds < choice.seconds)
        choice.reason +=
            fmt::format(", and ties go to {}, which is listed first", choice.algorithm);
      if (than != none) choice.reason += fmt::format("; next slower is {}: ", algorithms_[than]);
    }
    if (than != none)
      choice.reason += reason(choice.algorithm, mine, algorithms_[than], prices[than]);
  }
  return choice;
}

std::vector<Choice> Choices::table() const {
  std::vector<Choice> table;
  for (const std::size_t bytes : sizes_) table.push_back(choose(bytes));
  return table;
}

// Returns a hash of the table's names and the rules.
std::uint64_t Choices::hash() const {
  std::string text;
  for (const Choice& choice : table())
    text += fmt::format("{} {}\n", choice.bytes, choice.algorithm);
  for (const SizeRule& rule : rules_)
    text += fmt::format("{} {} {}\n", rule.algorithm, rule.from, rule.to);
  return engine::hash(text);
}

}  // namespace lockstep::collectives
