// SPDX-License-Identifier: MIT
#include "engine/report/step_times.h"

#include <fmt/core.h>

#include <algorithm>

#include "engine/base/median.h"

namespace lockstep::engine {
namespace {

constexpr double kFewSteps = 10;  // too few for a conclusion
constexpr double kMuch = 0.1;     // fractions of a step worth a line
constexpr double kLittle = 0.01;

// Returns "0.31 ms", "12.5 ms" or "1.52 s".
std::string duration(double seconds) {
  const double ms = seconds * 1e3;
  if (ms >= 1000) return fmt::format("{:.{}f} s", ms / 1000, ms < 10'000 ? 2 : 1);
  return fmt::format("{:.{}f} ms", ms, ms < 10 ? 2 : ms < 100 ? 1 : 0);
}

}  // namespace

std::array<double, RankTimes::kNumbers> RankTimes::numbers() const {
  return {steps, step_p10, step,     step_p90,     step_p99,      step_most,
          work,  waited,   messages, least_waited, least_messages};
}

RankTimes RankTimes::from(std::span<const double, kNumbers> n) {
  return {n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10]};
}

void StepClock::add(double seconds, double waited, double messages) {
  step_.add(seconds);
  waited_.add(waited);
  messages_.add(messages);
  work_.add(std::max(0.0, seconds - waited));
}

void StepClock::add_least(double waited, double messages) {
  least_waited_.add(waited);
  if (messages > 0) least_messages_.add(messages);
}

RankTimes StepClock::times() const {
  return {double(step_.count()),  step_.quantile(0.1),     step_.median(),
          step_.quantile(0.9),    step_.quantile(0.99),    step_.most(),
          work_.median(),         waited_.median(),        messages_.median(),
          least_waited_.median(), least_messages_.median()};
}

StepTimes step_times(std::span<const double> numbers) {
  StepTimes times;
  for (; numbers.size() >= RankTimes::kNumbers; numbers = numbers.subspan(RankTimes::kNumbers))
    times.ranks.push_back(RankTimes::from(numbers.first<RankTimes::kNumbers>()));
  const auto by_work = [](const RankTimes& a, const RankTimes& b) { return a.work < b.work; };
  const auto slowest = std::max_element(times.ranks.begin(), times.ranks.end(), by_work);
  times.slowest = int(slowest - times.ranks.begin());
  times.exposed = slowest->least_waited;
  times.messages = slowest->least_messages;
  double least = slowest->waited;
  std::vector<double> others;
  for (const RankTimes& rank : times.ranks) {
    least = std::min(least, rank.waited);
    if (&rank != &*slowest) others.push_back(rank.waited);
  }
  if (!others.empty()) times.waited_for_slowest = median(others) - least;
  times.late_in_turn = std::max(0.0, least - times.exposed);
  return times;
}

std::optional<double> StepTimes::hidden_percent() const {
  if (messages <= 0) return std::nullopt;
  return 100 * std::clamp(1 - exposed / messages, 0.0, 1.0);
}

bool StepTimes::communication_bound() const {
  const RankTimes& rank = ranks[std::size_t(slowest)];
  return ranks.size() > 1 && rank.steps >= kFewSteps && exposed > rank.work;
}

std::string StepTimes::describe() const {
  const RankTimes& rank = ranks[std::size_t(slowest)];
  std::string text = fmt::format("a step takes {} (median) and {} (99th percentile)",
                                 duration(rank.step), duration(rank.step_p99));
  if (ranks.size() == 1 || rank.steps < kFewSteps) return text;
  text += ". In the median step:";
  const auto part = [&](double seconds, const std::string& what) {
    text += fmt::format("\n{:>10}  {}", duration(seconds), what);
  };
  part(rank.work, fmt::format("rank {}, the slowest, computes", slowest));
  part(exposed,
       fmt::format("rank {} waits for communication that computation does not hide", slowest));
  const double least = kLittle * rank.step;  // less is not worth a line
  if (waited_for_slowest > least)
    part(waited_for_slowest, fmt::format("the other rank{} for rank {}",
                                         ranks.size() == 2 ? " waits" : "s wait", slowest));
  if (late_in_turn > kMuch * rank.step)
    part(late_in_turn, "every rank waits for others that are late in turn");
  if (const auto hidden = hidden_percent())
    part(messages, fmt::format("messages travel, {:.0f} % of it hidden by computation", *hidden));
  return text;
}

std::string StepTimes::warning() const {
  if (!communication_bound()) return {};
  return fmt::format(
      "communication takes longer than computation ({} instead of {} per step): a larger batch "
      "or fewer replicas use the machine better",
      duration(exposed), duration(ranks[std::size_t(slowest)].work));
}

}  // namespace lockstep::engine
