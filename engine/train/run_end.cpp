// SPDX-License-Identifier: MIT
#include "engine/train/run_end.h"

#include <algorithm>
#include <ranges>
#include <vector>

namespace lockstep::engine {

Error with_remedy(const Strategy& strategy, const Error& error, std::string_view remedy) {
  constexpr std::size_t kMost = 4;  // ranks
  std::string places;
  for (const int rank : error.ranks() | std::views::take(kMost)) {
    const std::string place = error.code() == Code::kTimeout ? strategy.place_of(rank) : "";
    if (!place.empty()) places += fmt::format("; rank {} is {}", rank, place);
  }
  const std::string_view text = error.what();
  const std::size_t details = std::min(text.find("; "), text.size());
  return error.with(
      fmt::format("{}{}{}{}", text.substr(0, details), places, remedy, text.substr(details)));
}

void find_interrupt(Strategy& strategy, const std::atomic<int>* interrupt, History& history) {
  const int first = strategy.membership().rank;
  strategy.run([&](Replica& replica) {
    const double mine[] = {double(interrupt != nullptr ? interrupt->load() : 0)};
    const std::vector<double> all = strategy.gather(replica, mine, "the interrupt of the run");
    if (replica.rank != first) return;
    const auto found = std::ranges::find_if(all, [](double one) { return one != 0; });
    if (found == all.end()) return;
    history.interrupted = int(*found);
    history.interrupted_rank = int(found - all.begin());
  });
}

std::string rate_change(const optim::Optimizer& optimizer, const RunState& state,
                        std::int64_t steps) {
  const auto rate = [&](auto of) {
    return optimizer.schedule.rate(optimizer.rate, state.step, of);
  };
  const double now = rate(steps), before = rate(state.steps);
  if (now == before) return {};
  return fmt::format(", so the learning rate goes on with {:.3g} instead of {:.3g}", now, before);
}

}  // namespace lockstep::engine
