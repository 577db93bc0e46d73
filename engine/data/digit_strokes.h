// SPDX-License-Identifier: MIT
// How digits are written: for each digit a few styles, each a list of strokes. Coordinates: x to
// the right and y downwards, a digit fills about x from -0.6 to 0.6 and y from -1 to 1.
#pragma once
#include <array>
#include <vector>

namespace lockstep::engine::data {

struct Point {
  double x = 0, y = 0;
};

struct Stroke {
  std::vector<Point> points;
  bool smooth = false;  // a curve through the points; else straight from each to the next
};

using DigitStyle = std::vector<Stroke>;
using DigitStyles = std::array<std::vector<DigitStyle>, 10>;

DigitStyles digit_styles();

// The stroke as points so near to each other that straight lines between them do.
void append_outline(const Stroke& stroke, std::vector<Point>& outline);

}  // namespace lockstep::engine::data
