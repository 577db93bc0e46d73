// SPDX-License-Identifier: MIT
#include "engine/report/timeline.h"

#include <algorithm>
#include <array>

namespace lockstep::engine {
namespace {

std::int64_t nanoseconds(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

}  // namespace

void Timeline::tell(Profiler* profiler) {
  if (profiler == profiler_) return;
  profiler_ = profiler;
  told_.clear();
  if (profiler == nullptr) return;
  for (const Kind& kind : kinds_) name(kind, told_.emplace_back());
}

// Names a kind "forward: conv1", or just "step" if its name begins with the category.
void Timeline::name(const Kind& kind, Told& told) {
  const bool once = kind.name.starts_with(kind.category);
  told.name = profiler_->name(once ? kind.name : kind.category + ": " + kind.name);
}

int Timeline::kind(Kind kind) {
  const auto [at, fresh] = index_.try_emplace({kind.category, kind.name}, int(kinds_.size()));
  if (!fresh) return at->second;
  if (profiler_ != nullptr) name(kind, told_.emplace_back());
  kinds_.push_back(std::move(kind));
  return at->second;
}

void Timeline::begin(int kind, std::int64_t number) {
  if (profiler_ == nullptr) return;
  Told& told = told_[std::size_t(kind)];
  if (kinds_[std::size_t(kind)].lane == Lane::kCommunication) {
    told.range = profiler_->start(told.name);
    return;
  }
  pushed_.fetch_add(1, std::memory_order_relaxed);
  if (number < 0) return profiler_->push(told.name);
  std::array<char, 64> text;
  const auto& name = kinds_[std::size_t(kind)].name;
  *fmt::format_to_n(text.data(), text.size() - 1, "{} {}", name, number).out = '\0';
  profiler_->push(text.data());
}

void Timeline::end_ranges() {
  if (profiler_ == nullptr) return;
  for (Told& told : told_) {
    if (const std::uint64_t range = told.range.exchange(0)) profiler_->end(range);
  }
  for (int left = pushed_.exchange(0); left > 0; --left) profiler_->pop();
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
  if (profiler_ != nullptr) {
    if (kinds_[std::size_t(kind)].lane == Lane::kComputing) {
      pushed_.fetch_sub(1, std::memory_order_relaxed);
      profiler_->pop();
    } else if (const std::uint64_t range = told_[std::size_t(kind)].range.exchange(0)) {
      profiler_->end(range);
    }
  }
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
