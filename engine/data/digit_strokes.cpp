// SPDX-License-Identifier: MIT
#include "engine/data/digit_strokes.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace lockstep::engine::data {
namespace {

Stroke lines(std::vector<Point> points) {
  return {std::move(points), false};
}
Stroke curve(std::vector<Point> points) {
  return {std::move(points), true};
}

// Returns part of an ellipse; degrees run clockwise from the right, so -90 is the top.
Stroke arc(Point centre, double width, double height, double from, double to) {
  const int pieces = std::max(3, int(std::abs(to - from) / 40));
  Stroke stroke{{}, true};
  for (int i = 0; i <= pieces; ++i) {
    const double angle = (from + (to - from) * i / pieces) * std::numbers::pi / 180;
    stroke.points.push_back(
        {centre.x + width * std::cos(angle), centre.y + height * std::sin(angle)});
  }
  return stroke;
}

void add_lower(DigitStyles& styles) {
  styles[0] = {
      {arc({0, 0}, 0.58, 0.95, -90, 270)},
      {arc({0, 0}, 0.42, 0.95, -60, -430)},
      {arc({0, 0}, 0.55, 0.92, -45, -385)},
  };
  styles[1] = {
      {lines({{0.05, -0.95}, {-0.05, 0.95}})},
      {lines({{-0.35, -0.5}, {0.05, -0.95}, {0.05, 0.95}})},
      {lines({{-0.32, -0.55}, {0.03, -0.95}, {0.03, 0.92}}), lines({{-0.42, 0.92}, {0.45, 0.92}})},
  };
  styles[2] = {
      {curve(
           {{-0.52, -0.5}, {-0.25, -0.88}, {0.28, -0.88}, {0.5, -0.45}, {0.2, 0.1}, {-0.58, 0.9}}),
       lines({{-0.58, 0.9}, {0.6, 0.9}})},
      {curve({{-0.5, -0.55},
              {-0.1, -0.95},
              {0.45, -0.6},
              {0.2, 0.1},
              {-0.3, 0.8},
              {-0.58, 0.75},
              {-0.42, 0.5},
              {0.05, 0.75},
              {0.6, 0.88}})},
      {lines({{-0.5, -0.85}, {0.05, -0.93}}),
       curve({{0.05, -0.93}, {0.48, -0.55}, {0.15, 0.15}, {-0.5, 0.88}}),
       lines({{-0.5, 0.88}, {0.55, 0.82}})},
  };
  styles[3] = {
      {curve({{-0.5, -0.75}, {0, -0.95}, {0.45, -0.6}, {0.3, -0.2}, {-0.12, -0.05}}),
       curve({{-0.12, -0.05}, {0.4, 0.1}, {0.55, 0.5}, {0.2, 0.92}, {-0.5, 0.75}})},
      {lines({{-0.48, -0.9}, {0.45, -0.9}, {-0.05, -0.15}}),
       curve({{-0.05, -0.15}, {0.45, 0.1}, {0.5, 0.6}, {0.05, 0.95}, {-0.5, 0.75}})},
      {curve({{-0.42, -0.85},
              {0.25, -0.9},
              {0.4, -0.45},
              {0, -0.08},
              {0.1, -0.02},
              {0.5, 0.3},
              {0.35, 0.82},
              {-0.1, 0.95},
              {-0.5, 0.85}})},
  };
  styles[4] = {
      {lines({{-0.35, -0.9}, {-0.55, 0.2}, {0.6, 0.2}}), lines({{0.25, -0.5}, {0.2, 0.95}})},
      {lines({{0.25, 0.95}, {0.25, -0.95}, {-0.6, 0.3}, {0.6, 0.3}})},
      {curve({{-0.5, -0.9}, {-0.5, -0.1}, {-0.1, 0.15}, {0.4, 0}}),
       lines({{0.45, -0.9}, {0.4, 0.95}})},
  };
}

void add_upper(DigitStyles& styles) {
  styles[5] = {
      {lines({{0.5, -0.9}, {-0.4, -0.9}, {-0.45, -0.1}}),
       curve({{-0.45, -0.1}, {0.1, -0.25}, {0.52, 0.2}, {0.35, 0.8}, {-0.1, 0.95}, {-0.52, 0.75}})},
      {curve({{0.5, -0.85},
              {0, -0.9},
              {-0.4, -0.6},
              {-0.2, -0.2},
              {0.3, 0.05},
              {0.45, 0.55},
              {0.05, 0.93},
              {-0.5, 0.75}})},
      {lines({{-0.35, -0.85}, {-0.4, -0.05}}), lines({{-0.35, -0.85}, {0.5, -0.92}}),
       curve({{-0.4, -0.05}, {0.25, -0.15}, {0.5, 0.4}, {0.2, 0.88}, {-0.45, 0.92}})},
  };
  styles[6] = {
      {curve({{0.4, -0.9},
              {-0.1, -0.55},
              {-0.45, 0.1},
              {-0.4, 0.7},
              {0, 0.95},
              {0.42, 0.7},
              {0.4, 0.3},
              {0.05, 0.08},
              {-0.4, 0.4}})},
      {curve({{0.1, -0.95},
              {-0.35, 0},
              {-0.5, 0.5},
              {-0.2, 0.92},
              {0.25, 0.9},
              {0.5, 0.5},
              {0.2, 0.15},
              {-0.25, 0.25},
              {-0.45, 0.6}})},
      {lines({{-0.2, -0.95}, {-0.42, 0.45}}), arc({0, 0.45}, 0.42, 0.48, 180, 540)},
  };
  styles[7] = {
      {lines({{-0.5, -0.85}, {0.5, -0.85}, {-0.1, 0.95}})},
      {lines({{-0.5, -0.85}, {0.5, -0.85}, {-0.1, 0.95}}), lines({{-0.32, 0.05}, {0.42, 0.05}})},
      {lines({{-0.5, -0.6}, {-0.5, -0.85}, {0.5, -0.85}}),
       curve({{0.5, -0.85}, {0.1, -0.1}, {-0.05, 0.95}})},
  };
  styles[8] = {
      {arc({0, -0.47}, 0.38, 0.46, -90, 270), arc({0, 0.46}, 0.48, 0.48, -90, 270)},
      {curve({{0.4, -0.7},
              {0, -0.95},
              {-0.4, -0.6},
              {0, -0.1},
              {0.45, 0.45},
              {0.05, 0.95},
              {-0.45, 0.5},
              {0, -0.1},
              {0.4, -0.55},
              {0.35, -0.8}})},
  };
  styles[9] = {
      {arc({0, -0.45}, 0.42, 0.48, 0, -360), lines({{0.42, -0.45}, {0.35, 0.95}})},
      {arc({0, -0.45}, 0.42, 0.48, 0, -360),
       curve({{0.42, -0.45}, {0.45, 0.2}, {0.2, 0.8}, {-0.4, 0.9}})},
      {curve(
           {{0.42, -0.65}, {0, -0.95}, {-0.42, -0.55}, {-0.15, -0.1}, {0.35, -0.3}, {0.44, -0.7}}),
       lines({{0.44, -0.7}, {0.1, 0.95}})},
  };
}

}  // namespace

DigitStyles digit_styles() {
  DigitStyles styles;
  add_lower(styles);
  add_upper(styles);
  return styles;
}

// Appends a Catmull-Rom spline: between points[i] and points[i + 1], the cubic whose slope at a
// point is that of the line from the previous to the next point.
void append_outline(const Stroke& stroke, std::vector<Point>& outline) {
  const std::vector<Point>& points = stroke.points;
  if (!stroke.smooth) {
    outline.insert(outline.end(), points.begin(), points.end());
    return;
  }
  constexpr int kPieces = 5;
  outline.push_back(points.front());
  for (std::size_t i = 0; i + 1 < points.size(); ++i) {
    const Point &a = points[i == 0 ? 0 : i - 1], &b = points[i], &c = points[i + 1],
                &d = points[std::min(i + 2, points.size() - 1)];
    for (int piece = 1; piece <= kPieces; ++piece) {
      const double t = double(piece) / kPieces, tt = t * t, ttt = tt * t;
      const auto at = [&](double pa, double pb, double pc, double pd) {
        return 0.5 * (2 * pb + (pc - pa) * t + (2 * pa - 5 * pb + 4 * pc - pd) * tt +
                      (3 * pb - pa - 3 * pc + pd) * ttt);
      };
      outline.push_back({at(a.x, b.x, c.x, d.x), at(a.y, b.y, c.y, d.y)});
    }
  }
}

}  // namespace lockstep::engine::data
