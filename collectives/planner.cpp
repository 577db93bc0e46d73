// SPDX-License-Identifier: MIT
#include "collectives/planner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "collectives/outcome.h"
#include "engine/base/error.h"
#include "engine/base/hash.h"

namespace lockstep::collectives {
namespace {

using engine::require;

constexpr std::size_t kSmallest = 256, kLargest = std::size_t(256) << 20;

// Prices so near are equal.
constexpr double kAlike = 1.001;

std::string amount(double bytes) {
  if (bytes < 1024) return fmt::format("{:.0f} bytes", bytes);
  if (bytes < double(1 << 20)) return fmt::format("{:.4g} KiB", bytes / 1024);
  return fmt::format("{:.4g} MiB", bytes / double(1 << 20));
}

// Who prices the k-th: they are dealt out forwards and backwards in turn, so that nobody always has
// the same algorithm.
int process_of(std::size_t k, int processes) {
  const auto all = std::size_t(processes);
  const std::size_t place = k % all;
  return int(k / all % 2 == 0 ? place : all - 1 - place);
}

using Prices = std::vector<std::vector<Price>>;  // [size][algorithm]

// What all processes priced, from what each said of its part.
void read_prices(const std::vector<std::string>& all, Prices& prices) {
  std::vector<std::size_t> at(all.size(), 0);
  std::size_t k = 0;
  for (std::size_t size = prices.size(); size-- > 0;)
    for (Price& price : prices[size]) {
      const auto process = std::size_t(process_of(k++, int(all.size())));
      engine::invariant(at[process] + sizeof(Price) <= all[process].size(),
                        "a process told of fewer prices than are its part");
      std::memcpy(&price, all[process].data() + at[process], sizeof(Price));
      at[process] += sizeof(Price);
    }
}

// The largest sizes first, since they take longest.
Prices prices(const Topology& topology, const std::vector<const Algorithm*>& able,
              const std::vector<std::size_t>& sizes, Bootstrap* together) {
  static_assert(std::is_trivially_copyable_v<Price>);
  Prices prices(sizes.size(), std::vector<Price>(able.size()));
  const int processes = together == nullptr ? 1 : together->processes();
  const auto mine = [&] {
    std::string text;
    std::size_t k = 0;
    for (std::size_t size = sizes.size(); size-- > 0;)
      for (std::size_t i = 0; i < able.size(); ++i) {
        if (processes > 1 && process_of(k++, processes) != together->process()) continue;
        const Price price = collectives::price(*able[i], topology, sizes[size]);
        prices[size][i] = price;
        text.append(reinterpret_cast<const char*>(&price), sizeof(Price));
      }
    return text;
  };
  if (processes > 1)
    read_prices(all_or_none(*together, "prices of all-reduces", mine), prices);
  else
    mine();
  return prices;
}

std::string in_turn(double rounds) {
  if (std::round(rounds) == 1) return "1 signal or message";
  return fmt::format("{:.0f} signals and messages one after the other", rounds);
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
  for (std::size_t bytes = kSmallest; bytes <= kLargest; bytes *= 2) sizes.push_back(bytes);
  return sizes;
}

Choices plan_all_reduce(const Topology& topology, std::span<const Algorithm> algorithms,
                        const std::vector<SizeRule>& rules, std::vector<std::size_t> sizes,
                        Bootstrap* together) {
  require(!topology.ranks.empty(), "a topology without ranks has nothing to reduce");
  require(!sizes.empty() && std::is_sorted(sizes.begin(), sizes.end()),
          "the sizes to be planned must ascend");
  Choices choices;
  choices.ranks_ = int(topology.ranks.size());
  choices.rules_ = rules;
  choices.sizes_ = std::move(sizes);
  const std::vector<int> host = topology.host_of_rank();
  std::vector<const Algorithm*> able;
  for (const Algorithm& algorithm : algorithms) {
    std::string why = algorithm.refusal(host);
    if (why.empty()) {
      able.push_back(&algorithm);
      choices.algorithms_.emplace_back(algorithm.name);
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
  choices.prices_ = prices(topology, able, choices.sizes_, together);
  return choices;
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
  const auto cheapest = [&](std::size_t but) {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < prices.size(); ++i)
      if (i != but) least = std::min(least, prices[i].seconds);
    std::size_t first = 0;
    while (first == but || prices[first].seconds > least * kAlike) ++first;
    return first;
  };
  Choice choice;
  choice.bytes = bytes;
  std::size_t chosen = cheapest(prices.size());
  for (const SizeRule& rule : rules_) {
    if (bytes < rule.from || bytes >= rule.to) continue;
    choice.asked = true;
    chosen = std::size_t(std::find(algorithms_.begin(), algorithms_.end(), rule.algorithm) -
                         algorithms_.begin());
  }
  choice.algorithm = algorithms_[chosen];
  choice.seconds = prices[chosen].seconds;
  if (algorithms_.size() > 1) {
    const std::size_t other = cheapest(chosen);
    choice.runner_up = algorithms_[other];
    choice.runner_up_seconds = prices[other].seconds;
    choice.reason = reason(prices, chosen, other);
  } else {
    choice.reason = "no other algorithm can serve these ranks";
  }
  if (ranks_ == 1) choice.reason = "there is one rank, so nothing has to be sent";
  if (choice.asked) {
    choice.reason = "it was asked for";
    if (choice.runner_up_seconds < choice.seconds && !choice.runner_up.empty())
      choice.reason += fmt::format("; {} would take {} instead of {}", choice.runner_up,
                                   time_text(choice.runner_up_seconds), time_text(choice.seconds));
  }
  return choice;
}

// What it gains most by, against the runner-up or, where that takes as long, against the next.
std::string Choices::reason(const std::vector<Price>& prices, std::size_t chosen,
                            std::size_t other) const {
  const Price& mine = prices[chosen];
  const auto alike = [&](std::size_t i) { return prices[i].seconds <= mine.seconds * kAlike; };
  if (alike(other)) {
    std::size_t next = prices.size();
    for (std::size_t i = 0; i < prices.size(); ++i)
      if (i != chosen && !alike(i) &&
          (next == prices.size() || prices[i].seconds < prices[next].seconds))
        next = i;
    const std::string as_long = fmt::format("{} takes as long", algorithms_[other]);
    if (next == prices.size()) return "none takes less time; " + as_long;
    return fmt::format("{}; {}", reason(prices, chosen, next), as_long);
  }
  const Price& than = prices[other];
  const std::string& name = algorithms_[other];
  const double wire = than.wire_seconds - mine.wire_seconds;
  const double memory = than.memory_seconds - mine.memory_seconds;
  const double rounds = than.round_seconds - mine.round_seconds;
  const double gain = than.seconds - mine.seconds;
  if (std::max(wire, memory) < gain / 4) {
    if (rounds >= gain / 4)
      return fmt::format("it has {}, {} has {:.0f}", in_turn(mine.rounds), name, than.rounds);
    return fmt::format("it does more at the same time than {}, and ends {} earlier", name,
                       time_text(gain));
  }
  if (wire >= memory)
    return fmt::format("it sends {} from a host, {} sends {}", amount(mine.wire_bytes), name,
                       amount(than.wire_bytes));
  if (mine.memory_bytes < 0.9 * than.memory_bytes)
    return fmt::format("it moves {} through the memory of a host, {} moves {}",
                       amount(mine.memory_bytes), name, amount(than.memory_bytes));
  return fmt::format("it needs the busiest part of a host for {}, {} needs it for {}",
                     time_text(mine.memory_seconds), name, time_text(than.memory_seconds));
}

std::vector<Choice> Choices::table() const {
  std::vector<Choice> table;
  for (const std::size_t bytes : sizes_) table.push_back(choose(bytes));
  return table;
}

// Of the table's names and the rules.
std::uint64_t Choices::hash() const {
  std::string text;
  for (const Choice& choice : table())
    text += fmt::format("{} {}\n", choice.bytes, choice.algorithm);
  for (const SizeRule& rule : rules_)
    text += fmt::format("{} {} {}\n", rule.algorithm, rule.from, rule.to);
  return engine::hash(text);
}

}  // namespace lockstep::collectives
