// SPDX-License-Identifier: MIT
#include "strategies/synchronous/weight_checks.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "engine/base/hash.h"

namespace lockstep::strategies {

using engine::Range;

namespace {

double hash_of_sums(std::span<const std::uint64_t> sums) {
  const std::string_view bytes(reinterpret_cast<const char*>(sums.data()), sums.size_bytes());
  return double(engine::hash(bytes) >> 12);
}

// Returns the number of steps in which all pieces of a parameter are checked.
std::size_t cycle_of(const engine::Parameter& parameter, bool on_host, std::size_t examples) {
  if (!on_host) return 1;
  if (parameter.sparse || parameter.frozen) return WeightChecks::kCycle;
  const bool convolution = parameter.shape.rank() > 2;  // read for many positions of each example
  if (convolution) return 1;
  return std::clamp(WeightChecks::kExamples / std::max<std::size_t>(1, examples), std::size_t(1),
                    WeightChecks::kCycle);
}

}  // namespace

WeightChecks::WeightChecks(engine::Ops& ops, const engine::Graph& graph, std::size_t examples)
    : ops_(ops), graph_(graph) {
  const std::vector<engine::Parameter>& layout = graph.layout();
  for (std::size_t i = 0; i < layout.size(); ++i) {
    const Range whole = layout[i].range;
    const std::size_t pieces = (whole.size() + kPiece - 1) / kPiece;
    const std::size_t cycle = std::min(cycle_of(layout[i], ops.in_host_memory(), examples), pieces);
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      const std::size_t begin = whole.begin + piece * kPiece;
      ranges_.push_back({begin, std::min(begin + kPiece, whole.end)});
      parameters_.push_back(i);
      cycle_.push_back(cycle);
      turn_.push_back(piece % cycle);
    }
  }
  taken_.resize(ranges_.size());
  const std::size_t sums = ranges_.size() * sizeof(std::uint64_t);
  device_ranges_ = ops.allocate(ranges_.size() * sizeof(Range), "what is checked of the weights");
  sums_ = ops.allocate(sums, "checksums of the weights");
  copies_ = ops.allocate_shared(2 * sums);
  ops.write(ranges_.data(), device_ranges_.data(), ranges_.size() * sizeof(Range));
  ops.synchronize();
}

void WeightChecks::add(const std::byte* weights, std::size_t end, std::int64_t step) {
  std::size_t begin = next_;
  for (; next_ < ranges_.size() && ranges_[next_].end <= end; ++next_) {
    if (std::size_t(step) % cycle_[next_] == turn_[next_]) continue;
    queue(weights, begin, next_);
    begin = next_ + 1;
  }
  queue(weights, begin, next_);
}

void WeightChecks::queue(const std::byte* weights, std::size_t begin, std::size_t end) {
  if (begin == end) return;
  const auto* const ranges = reinterpret_cast<const Range*>(device_ranges_.data());
  ops_.queue_checksums(weights, {ranges + begin, ranges + end},
                       reinterpret_cast<std::uint64_t*>(sums_.data()) + begin);
}

void WeightChecks::keep(std::int64_t step) {
  const std::size_t bytes = taken_.size() * sizeof(std::uint64_t);
  ops_.copy_bytes(sums_.data(), copies_.data() + std::size_t(step % 2) * bytes, bytes);
}

double WeightChecks::take(std::int64_t step) {
  const auto* const copies = reinterpret_cast<const std::uint64_t*>(copies_.data());
  std::copy_n(copies + std::size_t(step % 2) * taken_.size(), taken_.size(), taken_.begin());
  return hash_of_sums(taken_);
}

std::size_t WeightChecks::cycle() const {
  return std::ranges::max(cycle_);
}

double WeightChecks::hash_of(std::size_t piece) const {
  return hash_of_sums({&taken_[piece], 1});
}

const std::string& WeightChecks::parameter(std::size_t piece) const {
  return graph_.layout()[parameters_[piece]].name;
}

}  // namespace lockstep::strategies
