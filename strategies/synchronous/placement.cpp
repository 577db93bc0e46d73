// SPDX-License-Identifier: MIT
#include "strategies/synchronous/placement.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "engine/base/quantity.h"

namespace lockstep::strategies {
namespace {

using Row = std::array<std::string, 5>;
constexpr std::array<bool, 5> kRight{false, false, true, true, false};  // right-aligned columns

// Returns e.g. "cpu:0 of 4 replicas", with devices in the order of ranks.
std::string devices_text(const std::vector<std::string>& devices) {
  std::string text;
  for (auto at = devices.begin(); at != devices.end(); ++at) {
    if (std::find(devices.begin(), at, *at) != at) continue;
    const auto count = std::count(devices.begin(), devices.end(), *at);
    text += fmt::format("{}{} of {}", text.empty() ? "" : ", ", *at,
                        engine::count_text(std::uint64_t(count), "replica"));
  }
  return text;
}

// Returns e.g. "3", "3-4" if the variable spans a border, "-" if it is frozen.
std::string bucket_text(const engine::Parameter& parameter, const StepDesign& design) {
  if (parameter.frozen) return "-";
  std::size_t first = design.buckets.size(), last = 0;
  for (std::size_t b = 0; b < design.buckets.size(); ++b) {
    if (!design.buckets[b].meets(parameter.range)) continue;
    first = std::min(first, b);
    last = b;
  }
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

}  // namespace

std::string placement_table(const engine::Graph& graph, const StepDesign& design,
                            const std::vector<std::string>& devices) {
  const std::size_t width = engine::size_of(graph.dtype());
  const std::string where = devices_text(devices);
  std::vector<Row> rows{{"variable", "shape", "bytes", "bucket", "device"}};
  std::size_t bytes = 0;
  for (const engine::Parameter& parameter : graph.layout()) {
    const std::size_t size = parameter.range.size() * width;
    bytes += size;
    rows.push_back({parameter.name, to_string(parameter.shape), fmt::format("{}", size),
                    bucket_text(parameter, design), where});
  }
  rows.push_back({"all", "", fmt::format("{}", bytes), "", ""});
  std::array<std::size_t, 5> widths{};
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      line += kRight[c] ? fmt::format("{:>{}}  ", row[c], widths[c])
                        : fmt::format("{:<{}}  ", row[c], widths[c]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  const bool fused = design.update == Update::kFused;
  return text +
         (engine::has_master(graph.dtype()) ? "float32 masters and optimizer state"
                                            : "optimizer state") +
         (fused ? ": each replica keeps that of the slices that it updates"
                : ": each replica keeps all of it");
}

}  // namespace lockstep::strategies
