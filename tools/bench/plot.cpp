// SPDX-License-Identifier: MIT
#include "tools/bench/plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "collectives/algorithms/registry.h"
#include "engine/base/quantity.h"
#include "engine/checkpoint/whole_file.h"
#include "tools/svg.h"

namespace lockstep::tools::bench {
namespace {

constexpr double kPlotWidth = 970, kPlotHeight = 520, kLeftEdge = 70, kRightEdge = 760,
                 kTopEdge = 64, kBottomEdge = 460;
constexpr int kMostTicks = 11;
constexpr std::array<const char*, 7> kColors{"#1764ab", "#c1272d", "#2a8a3e", "#8a4fbf",
                                             "#c77700", "#00848c", "#b03a86"};

constexpr double kDot = 2.5, kChosenDot = 4;  // radii

struct Line {
  std::string name, color;
  bool dashed = false, joined = true;
  double dot = kDot;
  struct Point {
    SvgPoint at;  // bytes and GB/s, before they are scaled
    bool disturbed = false;
  };
  std::vector<Point> points = {};
};

// Returns a color that an algorithm has in all plots.
std::string color_of(const std::string& algorithm) {
  const auto all = collectives::all_reduce_algorithms();
  const auto found = std::ranges::find(all, algorithm, &collectives::Algorithm::name);
  return kColors[std::size_t(found - all.begin()) % kColors.size()];
}

void add_point(std::vector<Line>& lines, const Line& line, const Row& row, double us) {
  auto found = std::find_if(lines.begin(), lines.end(),
                            [&](const Line& other) { return other.name == line.name; });
  if (found == lines.end()) found = lines.insert(lines.end(), line);
  found->points.push_back(
      {{double(row.bytes), double(row.bytes) / us / 1e3 * row.task.bus_factor()},
       row.measured.in_place.wait.disturbed()});
}

// Returns whether each size has one row, but not all have the same algorithm.
bool are_choices(const std::vector<Row>& rows) {
  bool others = false;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    if (rows[i].bytes == rows[i - 1].bytes) return false;
    others |= rows[i].choice.algorithm != rows[0].choice.algorithm;
  }
  return others;
}

// Choices by size make one line, whose dots have the colors of their algorithms. Beside other
// algorithms, choices have dots of their own.
std::vector<Line> lines_of(const std::vector<Row>& rows, const std::string& rival) {
  std::vector<Line> lines, others;
  const bool choices = are_choices(rows);
  for (const Row& row : rows) {
    const double us = row.measured.in_place.median;
    if (choices) add_point(lines, {"lockstep", "#444444"}, row, us);
    add_point(
        lines,
        {.name = row.choice.algorithm, .color = color_of(row.choice.algorithm), .joined = !choices},
        row, us);
    const bool beside = (&row != rows.data() && (&row)[-1].bytes == row.bytes) ||
                        (&row != &rows.back() && (&row)[1].bytes == row.bytes);
    if (beside && row.choice.chosen)
      add_point(others, {.name = "choice", .color = "#000000", .joined = false, .dot = kChosenDot},
                row, us);
    // Roofline and rival are the same in all rows of a size.
    if (&row != rows.data() && (&row)[-1].bytes == row.bytes) continue;
    if (row.measured.rival) add_point(others, {rival, "#000000"}, row, row.measured.rival->median);
    if (row.measured.copied)
      add_point(others, {"copied", "#777777"}, row, row.measured.copied->median);
    if (row.measured.roofline_us)
      add_point(others, {"roofline", "#888888", true}, row, *row.measured.roofline_us);
  }
  lines.insert(lines.end(), others.begin(), others.end());
  return lines;
}

// A logarithmic axis from `low` to `high`, drawn from pixel `begin` to `end`.
struct PlotAxis {
  double low = 1, high = 2, begin = 0, end = 1;
  double operator()(double value) const {
    return begin + (end - begin) * std::log(std::max(value, low) / low) / std::log(high / low);
  }
};

// Returns the nearest 1, 2 or 5 times a power of ten that is not above the value.
double round_down(double value) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  return value >= 5 * power ? 5 * power : value >= 2 * power ? 2 * power : power;
}

PlotAxis bandwidth_axis(const std::vector<Line>& lines) {
  double low = 1e300, high = 0;
  for (const Line& line : lines)
    for (const auto& [at, disturbed] : line.points)
      if (at.y > 0) low = std::min(low, at.y), high = std::max(high, at.y);
  if (high == 0) low = high = 1;  // one rank: no traffic on the bus
  return {round_down(low), 1 / round_down(1 / (1.001 * high)), kBottomEdge, kTopEdge};
}

void draw_axes(Svg& svg, const PlotAxis& x, const PlotAxis& y, const char* what) {
  constexpr const char* kGrid = "stroke=\"#dddddd\"";
  for (const double at : round_ticks(y.low, y.high, kMostTicks, AxisScale::kLogarithmic)) {
    svg.line({kLeftEdge, y(at)}, {kRightEdge, y(at)}, kGrid);
    svg.text({kLeftEdge - 8, y(at) + 4}, fmt::format("{:g}", at), "text-anchor=\"end\"");
  }
  for (const double at : round_ticks(x.low, x.high, kMostTicks, AxisScale::kSizes)) {
    svg.line({x(at), kTopEdge}, {x(at), kBottomEdge + 5}, kGrid);
    svg.text({x(at), kBottomEdge + 20}, engine::bytes_text(at), "text-anchor=\"middle\"");
  }
  svg.text({(kLeftEdge + kRightEdge) / 2, kBottomEdge + 44}, what, "text-anchor=\"middle\"");
  svg.text({16, 44}, "bus bandwidth in place, GB/s", "font-size=\"12\"");
}

}  // namespace

std::string to_svg(const std::vector<Row>& rows, const std::string& title,
                   const std::string& rival) {
  const std::vector<Line> lines = lines_of(rows, rival);
  const double least = double(rows.front().bytes), most = double(rows.back().bytes);
  const PlotAxis x{least, most > least ? most : 2 * least, kLeftEdge, kRightEdge};
  const PlotAxis y = bandwidth_axis(lines);
  Svg svg;
  svg.text({16, 24}, title, "font-size=\"15\"");
  draw_axes(svg, x, y,
            rows[0].task.collective == Collective::kAllGather ? "size of the result"
                                                              : "size of one rank's input");
  SvgPoint legend{kRightEdge + 20, kTopEdge + 6};
  bool any_disturbed = false;
  for (const Line& line : lines) {
    std::vector<SvgPoint> points;
    const std::string fill = fmt::format("fill=\"{}\"", line.color);
    const std::string hollow = fmt::format("fill=\"#ffffff\" stroke=\"{}\"", line.color);
    for (const auto& [at, disturbed] : line.points)
      if (at.y > 0) points.push_back({x(at.x), y(at.y)});
    if (line.joined) {
      const std::string look = fmt::format("stroke=\"{}\" stroke-width=\"2\"{}", line.color,
                                           line.dashed ? " stroke-dasharray=\"5 4\"" : "");
      svg.polyline(points, look);
      svg.line(legend, {legend.x + 24, legend.y}, look);
    } else {
      svg.dot({legend.x + 12, legend.y}, line.dot, fill);
    }
    for (const auto& [at, disturbed] : line.points) {
      if (at.y > 0) svg.dot({x(at.x), y(at.y)}, line.dot, disturbed ? hollow : fill);
      any_disturbed |= disturbed;
    }
    svg.text({legend.x + 32, legend.y + 4}, line.name);
    legend.y += 20;
  }
  if (any_disturbed) {
    svg.dot({legend.x + 12, legend.y}, kDot, "fill=\"#ffffff\" stroke=\"#444444\"");
    svg.text({legend.x + 32, legend.y + 4}, "hollow: disturbed (!)");
  }
  return svg.finish(kPlotWidth, kPlotHeight);
}

void write_svg(const std::string& path, const std::vector<Row>& rows, const std::string& title,
               const std::string& rival) {
  engine::WholeFile(path).commit(to_svg(rows, title, rival));
}

}  // namespace lockstep::tools::bench
