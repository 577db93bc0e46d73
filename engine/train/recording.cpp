// SPDX-License-Identifier: MIT
#include "engine/train/recording.h"

#include <algorithm>

namespace lockstep::engine {
namespace {

// The names are indexed by Recording::Part. An index equals the kind, because a timeline begins
// with these kinds.
constexpr const char* kParts[][2] = {
    {"step", "step"},
    {"input", "input"},
    {"loss", "loss"},
    {"strategy", "before_forward"},
    {"strategy", "gradient_ready"},
    {"strategy", "finish"},
    {"strategy", "report"},
    {"strategy", "synchronize"},
};
// The approximate spans of a kind per micro-batch: strategy calls once per layer, occasional waits,
// and layers once per slice of a batch, in forward and again in backward.
constexpr std::size_t kSpansOfKind = 3;

}  // namespace

Recording::Recording(Profile* profile, Profiler* profiler, Replica& replica, int parts)
    : profile_(profile), replica_(replica) {
  if (profile != nullptr) {
    timeline_ = &profile->timeline(replica.rank);
  } else if (profiler != nullptr) {
    if (!replica.ranges) replica.ranges.emplace(replica.rank);
    timeline_ = &*replica.ranges;
  } else {
    return;
  }
  timeline_->tell(profiler);
  for (const auto& part : kParts) {
    timeline_->kind({Timeline::Lane::kComputing, part[0], part[1], {}});
  }
  for (const std::string& name : replica.graph.layers()) {
    layers_[0][name] = timeline_->kind({Timeline::Lane::kComputing, "forward", name, {}});
    layers_[1][name] = timeline_->kind({Timeline::Lane::kComputing, "backward", name, {}});
  }
  replica.record(timeline_);
  replica.graph.observe(this);
  if (profile == nullptr) return;
  const std::size_t steps = std::size_t(profile->steps());
  const std::size_t layers = replica.graph.layers().size() * replica.graph.slices();
  const std::size_t spans = kSpansOfKind * (timeline_->kinds().size() + layers);
  timeline_->reserve(std::min(Profile::kMostSpans, spans * std::size_t(parts) * steps), steps);
}

Recording::~Recording() {
  if (timeline_ == nullptr) return;
  timeline_->end_steps();
  replica_.graph.observe(nullptr);
  replica_.record(nullptr);
  timeline_->end_ranges();  // left open by a failed run
}

Timeline* Recording::wanted() const {
  return timeline_ != nullptr && timeline_->wanted() ? timeline_ : nullptr;
}

Recording::Span Recording::span(Part part) const {
  return {wanted(), int(part)};
}

Recording::Span Recording::step(std::int64_t step) const {
  if (profile_ != nullptr) {
    profile_->records(step) ? timeline_->begin_step(step + 1) : timeline_->end_steps();
  }
  return {wanted(), int(Part::kStep), step + 1};
}

void Recording::begins(const std::string& name, Pass pass) {
  if (timeline_->wanted()) timeline_->begin(layers_[pass == Pass::kBackward].at(name));
}

void Recording::layer(const std::string& name, Pass pass, Clock::time_point begin,
                      Clock::time_point end, Tensor) {
  if (!timeline_->wanted()) return;
  timeline_->add(layers_[pass == Pass::kBackward].at(name), begin, end);
}

}  // namespace lockstep::engine
