// SPDX-License-Identifier: MIT
#include "tools/svg.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

namespace lockstep::tools {
namespace {

constexpr double kTickSlack = 1e-9;  // relative; ticks at the ends are kept

std::string svg_escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '<') {
      safe += "&lt;";
    } else if (c == '&') {
      safe += "&amp;";
    } else if (static_cast<unsigned char>(c) >= 32) {
      safe += c;
    }
  }
  return safe;
}

template <class... Values>
void append_svg(std::string& body, fmt::format_string<Values...> form, Values&&... values) {
  fmt::format_to(std::back_inserter(body), form, std::forward<Values>(values)...);
}

std::vector<double> linear_ticks(double low, double high, int most) {
  const double least = (high - low) / most;
  double step = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {2.0, 2.5, 2.0})  // 1, 2, 5, 10
    if (std::floor(high / step + kTickSlack) - std::ceil(low / step - kTickSlack) >= most)
      step *= factor;
  std::vector<double> ticks;
  const double last = std::floor(high / step + kTickSlack);
  for (double at = std::ceil(low / step - kTickSlack); at <= last; ++at) ticks.push_back(at * step);
  return ticks;
}

std::vector<double> logarithmic_ticks(double low, double high, int most) {
  const int first = int(std::floor(std::log10(low))), last = int(std::ceil(std::log10(high)));
  std::vector<double> ticks;
  for (int decades = 0; ticks.empty() || int(ticks.size()) > most; ++decades) {
    ticks.clear();
    for (int power = first; power <= last; ++power)
      for (const double factor : {1.0, 2.0, 5.0}) {
        const double at = factor * std::pow(10, power);
        // The first round takes all factors, later ones every power, every second power, ...
        const bool taken = decades == 0 || (factor == 1 && power % decades == 0);
        if (taken && at >= low * (1 - kTickSlack) && at <= high * (1 + kTickSlack))
          ticks.push_back(at);
      }
    if (decades > last - first) break;
  }
  return ticks;
}

std::vector<double> size_ticks(double low, double high, int most) {
  const int last = int(std::floor(std::log2(high) + kTickSlack));
  std::vector<double> ticks;
  for (const int step : {1, 2, 4, 10, 20}) {
    ticks.clear();
    for (int power = int(std::ceil(std::log2(low) - kTickSlack)); power <= last; ++power)
      if (power % step == 0) ticks.push_back(std::ldexp(1, power));
    if (int(ticks.size()) <= most) break;
  }
  return ticks;
}

}  // namespace

void Svg::text(SvgPoint at, std::string_view words, std::string_view look) {
  append_svg(body_, "<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", at.x, at.y, look,
             svg_escaped(words));
}

void Svg::box(SvgPoint corner, double width, double height, std::string_view look) {
  append_svg(body_, "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" {}/>\n",
             corner.x, corner.y, width, height, look);
}

void Svg::line(SvgPoint from, SvgPoint to, std::string_view look) {
  append_svg(body_, "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", from.x,
             from.y, to.x, to.y, look);
}

void Svg::polyline(std::span<const SvgPoint> points, std::string_view look) {
  std::string list;
  for (const SvgPoint& point : points) append_svg(list, "{:.1f},{:.1f} ", point.x, point.y);
  append_svg(body_, "<polyline points=\"{}\" fill=\"none\" {}/>\n", list, look);
}

void Svg::dot(SvgPoint at, double radius, std::string_view look) {
  append_svg(body_, "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" {}/>\n", at.x, at.y, radius,
             look);
}

void Svg::arc(SvgPoint from, double to_x, double rise, std::string_view look) {
  append_svg(body_, "<path d=\"M{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}\" fill=\"none\" {}/>\n",
             from.x, from.y, (from.x + to_x) / 2, from.y - 2 * rise, to_x, from.y, look);
}

void Svg::arrow(SvgPoint from, SvgPoint to, bool both, std::string_view color,
                std::string_view title) {
  constexpr double kHead = 6, kHalfHead = 2.3;
  const double length = std::max(std::hypot(to.x - from.x, to.y - from.y), 1e-3);
  const double dx = (to.x - from.x) / length, dy = (to.y - from.y) / length;
  std::string path;
  const auto head = [&](SvgPoint tip, double way) {
    const double x = tip.x - way * kHead * dx, y = tip.y - way * kHead * dy;
    append_svg(path, "M{:.1f} {:.1f}L{:.1f} {:.1f}L{:.1f} {:.1f}Z", tip.x, tip.y,
               x - kHalfHead * dy, y + kHalfHead * dx, x + kHalfHead * dy, y - kHalfHead * dx);
  };
  append_svg(path, "M{:.1f} {:.1f}L{:.1f} {:.1f}", from.x, from.y, to.x, to.y);
  head(to, 1);
  if (both) head(from, -1);
  append_svg(body_,
             "<path class=\"arrow\" d=\"{}\" fill=\"{}\" stroke=\"{}\"><title>{}</title></path>\n",
             path, color, color, svg_escaped(title));
}

std::string Svg::finish(double width, double height) const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 "
      "0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{2}</svg>\n",
      width, height, body_);
}

std::vector<double> round_ticks(double low, double high, int most, AxisScale scale) {
  if (high <= low) return {low};
  std::vector<double> ticks = scale == AxisScale::kLinear ? linear_ticks(low, high, most)
                              : scale == AxisScale::kLogarithmic
                                  ? logarithmic_ticks(low, high, most)
                                  : size_ticks(low, high, most);
  if (ticks.size() < 2) ticks = {low, high};
  return ticks;
}

std::string tick_time(double seconds) {
  constexpr std::array<const char*, 4> kUnits{"ns", "us", "ms", "s"};
  if (seconds == 0) return "0";
  std::size_t unit = 0;
  double number = seconds * 1e9;
  for (; number >= 1000 * (1 - kTickSlack) && unit + 1 < kUnits.size(); number /= 1000) ++unit;
  return fmt::format("{:g} {}", number, kUnits[unit]);
}

}  // namespace lockstep::tools
