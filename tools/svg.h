// SPDX-License-Identifier: MIT
// Svg: a drawing as SVG text, and the round ticks of its axes. Coordinates are pixels; y grows
// downward. A `look` holds attributes, such as fill="none". Pure.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tools {

struct SvgPoint {
  double x = 0, y = 0;
};

class Svg {
 public:
  // Adds text whose baseline begins at the point, unless the look anchors it elsewhere. Markup
  // characters are escaped, and control characters left out.
  void text(SvgPoint at, std::string_view words, std::string_view look = "");
  void box(SvgPoint corner, double width, double height, std::string_view look);
  void line(SvgPoint from, SvgPoint to, std::string_view look);
  void polyline(std::span<const SvgPoint> points, std::string_view look);
  void dot(SvgPoint at, double radius, std::string_view look);
  // Adds an arc between two points of equal height, with its top `rise` above them.
  void arc(SvgPoint from, double to_x, double rise, std::string_view look);
  // Adds a line with a head at `to`, and at `from` too if `both`. `title` is its tooltip.
  void arrow(SvgPoint from, SvgPoint to, bool both, std::string_view color, std::string_view title);
  std::string finish(double width, double height) const;

 private:
  std::string body_;
};

// Names the scale of an axis. kSizes is logarithmic, with ticks at powers of two.
enum class AxisScale { kLinear, kLogarithmic, kSizes };

// Returns at most `most` round numbers from `low` to `high`: 1, 2 or 5 times a power of ten, or
// powers of two for sizes. A linear axis has equal steps of such a number. Returns the ends if
// there are no two round numbers between them.
std::vector<double> round_ticks(double low, double high, int most, AxisScale scale);
// Returns the label of a tick at a round time: "0", "50 ns", "200 us", "1 ms".
std::string tick_time(double seconds);

}  // namespace lockstep::tools
