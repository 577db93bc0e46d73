// SPDX-License-Identifier: MIT
// Paints digits of 28x28 bytes, each a function of (key, index): a style, points that wobble, a
// wave through the whole, an affine map, a pen, then noise, clutter and contrast. Costs about 20 us
// per digit. Not thread-safe, because it keeps its scratch memory.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/random.h"
#include "engine/data/digit_strokes.h"

namespace lockstep::engine::data {

class DigitPainter {
 public:
  static constexpr std::size_t kSide = 28;
  static constexpr std::size_t kPixels = kSide * kSide;

  explicit DigitPainter(std::uint64_t key);
  // Fills kPixels bytes and returns the digit.
  int paint(std::uint64_t index, std::span<std::uint8_t> pixels);

 private:
  void draw(Random& random, int digit);
  void draw_clutter(Random& random);
  void draw_line(Point from, Point to, double radius, double ink);

  std::uint64_t key_;
  DigitStyles styles_;
  std::vector<float> canvas_;  // ink of each pixel, 0 to 1
  Stroke stroke_;              // scratch
  std::vector<Point> outline_;
};

}  // namespace lockstep::engine::data
