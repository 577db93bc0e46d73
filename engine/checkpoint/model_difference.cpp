// SPDX-License-Identifier: MIT
#include "engine/checkpoint/model_difference.h"

#include <fmt/core.h>

#include <sstream>
#include <string_view>

namespace lockstep::engine {
namespace {

constexpr std::string_view kNothing = "(nothing)", kSynchronised = ", synchronised";

// Returns the label smoothing of a softmax cross-entropy line, or an empty text for another line.
std::string smoothing_of(const std::string& line) {
  constexpr std::string_view kLoss = "loss: softmax_cross_entropy", kSmoothing = " smoothing ";
  if (!line.starts_with(kLoss)) return "";
  const std::string rest = line.substr(kLoss.size());
  if (rest.empty()) return "0";
  return rest.starts_with(kSmoothing) ? rest.substr(kSmoothing.size()) : "";
}

// Returns a batch norm's line as it would be with statistics of each replica.
std::string local(std::string line) {
  const auto word = line.find(kSynchronised);
  if (word == std::string::npos) return line;
  line.erase(word, kSynchronised.size());
  return line.substr(0, line.find("; sums "));
}

ModelDifference of_option(const char* name, Option option, const std::string& there,
                          const std::string& here) {
  return {fmt::format("{} {} there, {} here", name, there, here), fmt::format("{} {}", name, there),
          option};
}

ModelDifference of_lines(const std::string& there, const std::string& here) {
  const std::string smoothed = smoothing_of(there), now = smoothing_of(here);
  if (!smoothed.empty() && !now.empty())
    return of_option("label smoothing", Option::kLabelSmoothing, smoothed, now);
  const bool synchronised = there.find(kSynchronised) != std::string::npos;
  const bool is_here = here.find(kSynchronised) != std::string::npos;
  if (synchronised != is_here && local(there) == local(here)) {
    return of_option("batch norm", Option::kBatchNorm, synchronised ? "synchronised" : "local",
                     synchronised ? "local" : "synchronised");
  }
  return {fmt::format("'{}' there, '{}' here", there, here), ""};
}

}  // namespace

ModelDifference model_difference(const std::string& there, const std::string& here) {
  std::istringstream a(there), b(here);
  for (std::string x, y;;) {
    const bool more_a = bool(std::getline(a, x)), more_b = bool(std::getline(b, y));
    if (!more_a && !more_b) return {"nothing", ""};
    if (!more_a) x = kNothing;
    if (!more_b) y = kNothing;
    if (x != y) return of_lines(x, y);
  }
}

}  // namespace lockstep::engine
