// SPDX-License-Identifier: MIT
#include "engine/train/area_under_curve.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "engine/base/error.h"

namespace lockstep::engine {
namespace {

constexpr std::size_t kScoreBytes = sizeof(float) + 1;

}  // namespace

void append_scores(const Tensor& outputs, const Tensor& target, std::size_t rows,
                   std::vector<ScoredExample>& scores) {
  invariant(outputs.columns() == 2 && target.columns() == 1, "scores of other than two classes");
  for (std::size_t row = 0; row < rows; ++row) {
    const double of_negative = number_at(outputs.data, outputs.dtype, 2 * row);
    const double of_positive = number_at(outputs.data, outputs.dtype, 2 * row + 1);
    scores.push_back({float(of_positive - of_negative), target.as<float>()[row] == 1});
  }
}

// Computes the area from ranks (Hanley and McNeil 1982): each positive example counts the negative
// ones below it.
double area_under_curve(std::vector<ScoredExample> scores) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (std::ranges::any_of(scores, [](const auto& s) { return std::isnan(s.score); })) return kNone;
  std::ranges::sort(scores, {}, &ScoredExample::score);
  std::uint64_t negatives = 0, positives = 0;
  double area = 0;
  for (auto first = scores.begin(); first != scores.end();) {
    const auto last = std::find_if(first, scores.end(),
                                   [&](const auto& other) { return other.score != first->score; });
    const auto mine =
        std::uint64_t(std::count_if(first, last, [](const auto& s) { return s.positive; }));
    const std::uint64_t others = std::uint64_t(last - first) - mine;
    area += double(mine) * (double(negatives) + double(others) / 2);
    negatives += others;
    positives += mine;
    first = last;
  }
  if (negatives == 0 || positives == 0) return kNone;
  return area / (double(negatives) * double(positives));
}

std::string score_bytes(const std::vector<ScoredExample>& scores) {
  std::string bytes(scores.size() * kScoreBytes, '\0');
  char* to = bytes.data();
  for (const ScoredExample& example : scores) {
    std::memcpy(to, &example.score, sizeof example.score);
    to[sizeof example.score] = example.positive ? 1 : 0;
    to += kScoreBytes;
  }
  return bytes;
}

void append_scores(std::string_view bytes, std::vector<ScoredExample>& scores) {
  for (; bytes.size() >= kScoreBytes; bytes.remove_prefix(kScoreBytes)) {
    ScoredExample example;
    std::memcpy(&example.score, bytes.data(), sizeof example.score);
    example.positive = bytes[sizeof example.score] != 0;
    scores.push_back(example);
  }
}

}  // namespace lockstep::engine
