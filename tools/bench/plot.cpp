// SPDX-License-Identifier: MIT
#include "tools/bench/plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/checkpoint/whole_file.h"

namespace lockstep::tools::bench {
namespace {

constexpr double kPlotWidth = 970, kPlotHeight = 520, kLeftMargin = 70, kRightMargin = 260,
                 kTopMargin = 50, kBottomMargin = 60;
constexpr std::array<const char*, 7> kColours{"#1764ab", "#c1272d", "#2a8a3e", "#8a4fbf",
                                              "#c77700", "#00848c", "#b03a86"};

struct Point {
  double bytes = 0, busbw = 0;
};
struct Line {
  std::string name, colour;
  bool dashed = false;
  std::vector<Point> points = {};
};

double bandwidth(const Row& row, double us) {
  return double(row.bytes) / us / 1e3 * row.task.bus_factor();
}

std::vector<Line> lines(const std::vector<Row>& rows, const std::string& rival) {
  std::vector<Line> all;
  const auto add = [&](const std::string& name, const std::string& colour, bool dashed,
                       const Row& row, double us) {
    auto line = std::find_if(all.begin(), all.end(), [&](const Line& l) { return l.name == name; });
    if (line == all.end()) line = all.insert(all.end(), {name, colour, dashed});
    line->points.push_back({double(row.bytes), bandwidth(row, us)});
  };
  std::vector<std::string> algorithms;
  for (const Row& row : rows) {
    const std::string& name = row.choice.algorithm;
    const auto known = std::find(algorithms.begin(), algorithms.end(), name);
    const std::string colour = kColours[std::size_t(known - algorithms.begin()) % kColours.size()];
    if (known == algorithms.end()) algorithms.push_back(name);
    add(name + ", in place", colour, false, row, row.measured.in_place.median);
    if (row.measured.out_of_place)
      add(name + ", out of place", colour, true, row, row.measured.out_of_place->median);
    // Roofline and rival are measured again with each algorithm; the first row of a size counts for
    // all.
    if (&row != rows.data() && (&row)[-1].bytes == row.bytes) continue;
    if (row.measured.roofline_us) add("roofline", "#888888", true, row, *row.measured.roofline_us);
    if (row.measured.rival) add(rival, "#000000", false, row, row.measured.rival->median);
  }
  return all;
}

std::string size_name(double bytes) {
  constexpr std::array<const char*, 4> kUnits{"B", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return fmt::format("{:g} {}", bytes, kUnits[unit]);
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) safe += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return safe;
}

}  // namespace

std::string to_svg(const std::vector<Row>& rows, const std::string& title,
                   const std::string& rival) {
  const std::vector<Line> all = lines(rows, rival);
  double least = 1e300, most = 0, low = 1e300, high = 0;
  for (const Line& line : all)
    for (const Point& p : line.points) {
      least = std::min(least, p.bytes), most = std::max(most, p.bytes);
      if (p.busbw > 0) low = std::min(low, p.busbw), high = std::max(high, p.busbw);
    }
  if (high == 0) low = high = 1;  // one rank: no traffic on the bus
  const double first = std::floor(std::log10(low)), last = std::floor(std::log10(high)) + 1;
  const double sizes = std::max(1.0, std::log2(most / least));
  const auto x = [&](double bytes) {
    return kLeftMargin +
           (kPlotWidth - kLeftMargin - kRightMargin) * std::log2(bytes / least) / sizes;
  };
  const auto y = [&](double busbw) {
    const double at = (std::log10(std::max(busbw, std::pow(10, first))) - first) / (last - first);
    return kPlotHeight - kBottomMargin - (kPlotHeight - kTopMargin - kBottomMargin) * at;
  };
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{}\" y=\"24\" font-size=\"15\">{}</text>\n",
      kPlotWidth, kPlotHeight, kLeftMargin, escaped(title));
  for (double power = first; power <= last; ++power) {
    const double at = y(std::pow(10, power));
    svg += fmt::format(
        "<path d=\"M{} {:.1f}H{}\" stroke=\"#dddddd\"/><text x=\"{}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{:g}</text>\n",
        kLeftMargin, at, kPlotWidth - kRightMargin, kLeftMargin - 8, at + 4, std::pow(10, power));
  }
  for (double bytes = least; bytes <= most * 1.01; bytes *= sizes > 10 ? 16 : 4)
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", x(bytes),
                       kPlotHeight - kBottomMargin + 20, size_name(bytes));
  svg += fmt::format(
      "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">size of one rank's input</text>\n"
      "<text transform=\"translate(18 {}) rotate(-90)\" text-anchor=\"middle\">bus bandwidth, "
      "GB/s</text>\n",
      (kLeftMargin + kPlotWidth - kRightMargin) / 2, kPlotHeight - 15,
      (kTopMargin + kPlotHeight - kBottomMargin) / 2);
  double legend = kTopMargin + 10;
  for (const Line& line : all) {
    std::string points;
    for (const Point& p : line.points)
      points += fmt::format("{:.1f},{:.1f} ", x(p.bytes), y(p.busbw));
    const std::string style =
        fmt::format("fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}", line.colour,
                    line.dashed ? " stroke-dasharray=\"5 4\"" : "");
    for (const Point& p : line.points)
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"/>\n",
                         x(p.bytes), y(p.busbw), line.colour);
    svg += fmt::format(
        "<polyline points=\"{}\" {}/>\n<path d=\"M{} {}h24\" {}/><text x=\"{}\" "
        "y=\"{}\">{}</text>\n",
        points, style, kPlotWidth - kRightMargin + 12, legend, style,
        kPlotWidth - kRightMargin + 42, legend + 4, escaped(line.name));
    legend += 20;
  }
  return svg + "</svg>\n";
}

void write_svg(const std::string& path, const std::vector<Row>& rows, const std::string& title,
               const std::string& rival) {
  engine::WholeFile(path).commit(to_svg(rows, title, rival));
}

}  // namespace lockstep::tools::bench
