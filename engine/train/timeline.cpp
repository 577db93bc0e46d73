// SPDX-License-Identifier: MIT
#include "engine/train/timeline.h"

#include <algorithm>

namespace lockstep::engine {
namespace {

std::int64_t nanoseconds(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

}  // namespace

int Timeline::kind(Kind kind) {
  const auto [at, fresh] = index_.try_emplace({kind.category, kind.name}, int(kinds_.size()));
  if (fresh) kinds_.push_back(std::move(kind));
  return at->second;
}

void Timeline::reserve(std::size_t spans, std::size_t steps) {
  if (!spans_.empty()) return;
  spans_.resize(spans);
  steps_.reserve(steps);
}

void Timeline::begin_step(std::int64_t step) {
  const std::int64_t now = nanoseconds(Clock::now());
  if (steps_.size() < steps_.capacity()) steps_.push_back({step, now});
  if (records()) return;
  end_ = kNever;
  begin_ = now;
}

void Timeline::end_steps() {
  if (records()) end_ = nanoseconds(Clock::now());
}

void Timeline::add(int kind, Clock::time_point begin, Clock::time_point end) {
  const std::int64_t from = nanoseconds(begin);
  if (from < begin_.load(std::memory_order_relaxed) || from > end_.load(std::memory_order_relaxed))
    return;
  const std::size_t at = used_.fetch_add(1, std::memory_order_relaxed);
  if (at < spans_.size()) spans_[at] = {kind, from, nanoseconds(end)};
}

std::vector<Timeline::Span> Timeline::spans() const {
  std::vector<Span> sorted(spans_.begin(),
                           spans_.begin() + std::ptrdiff_t(std::min(spans_.size(), used_.load())));
  std::stable_sort(sorted.begin(), sorted.end(), [](const Span& a, const Span& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  return sorted;
}

std::size_t Timeline::left_out() const {
  return used_.load() - std::min(spans_.size(), used_.load());
}

}  // namespace lockstep::engine
