// SPDX-License-Identifier: MIT
// The shapes of digits: each digit has a few styles, each a list of strokes. Coordinates: x to the
// right and y downward; a digit covers about -0.6 to 0.6 in x and -1 to 1 in y.
#pragma once
#include <array>
#include <vector>

namespace lockstep::engine::data {

struct Point {
  double x = 0, y = 0;
};

struct Stroke {
  std::vector<Point> points;
  bool smooth = false;  // a curve through the points; else straight lines
};

using DigitStyle = std::vector<Stroke>;
using DigitStyles = std::array<std::vector<DigitStyle>, 10>;

DigitStyles digit_styles();

// Appends the stroke as points so close to each other that straight lines between them suffice.
void append_outline(const Stroke& stroke, std::vector<Point>& outline);

}  // namespace lockstep::engine::data
