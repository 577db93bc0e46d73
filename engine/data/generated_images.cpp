// SPDX-License-Identifier: MIT
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "engine/base/error.h"
#include "engine/base/random.h"
#include "engine/data/sets.h"

namespace lockstep::engine::data {
namespace {

constexpr std::size_t kChannels = 3;
using Colour = std::array<float, kChannels>;

Colour colour(Random& random) {
  Colour drawn;
  for (float& channel : drawn) channel = float(random.uniform(-0.6, 0.6));
  return drawn;
}

// Each class has two colors, mixed by stripes of its own direction and width, and a spot of a third
// color at its own place. Each image moves the stripes and the spot, shifts all colors and adds
// noise to every number. Coordinates are from 0 to 1 in both directions.
class Images final : public Dataset {
 public:
  Images(const ImagesOptions& options, std::uint64_t count, const std::string& part)
      : shape_{options.height, options.width, kChannels},
        classes_(options.classes),
        count_(count),
        part_(part),
        classes_key_(stream_key(options.seed, "generated images' classes")),
        examples_key_(stream_key(options.seed, "generated images " + part)),
        noise_key_(stream_key(options.seed, "generated images' noise " + part)),
        fingerprint_(
            stream_key(options.seed, fmt::format("generated images 1 {} {} of {}, {} classes", part,
                                                 count, to_string(shape_), options.classes))) {}
  std::uint64_t size() const override { return count_; }
  Shape input_shape() const override { return shape_; }
  std::size_t target_columns() const override { return 1; }
  std::size_t classes() const override { return classes_; }
  void read(std::uint64_t index, std::span<float> input, std::span<float> target) const override {
    Random example(examples_key_, index);
    const std::uint64_t label = example.below(classes_);
    target[0] = float(label);
    paint(Random(classes_key_, label), example, input);
    add_noise(index, input);
  }
  std::string describe() const override {
    return fmt::format("generated images/{}: {} of {}, {} classes", part_, count_,
                       to_string(shape_), classes_);
  }
  std::uint64_t fingerprint() const override { return fingerprint_; }

 private:
  void paint(Random style, Random& example, std::span<float> input) const {
    const Colour one = colour(style), other = colour(style), third = colour(style);
    const double angle = style.uniform(0, std::numbers::pi), waves = style.uniform(2, 7);
    const double across = waves * std::cos(angle), along = waves * std::sin(angle);
    const double phase = example.uniform();
    const double spot_x = style.uniform(0.2, 0.8) + example.uniform(-0.1, 0.1);
    const double spot_y = style.uniform(0.2, 0.8) + example.uniform(-0.1, 0.1);
    const double radius = style.uniform(0.1, 0.25);
    Colour shift;
    for (float& channel : shift) channel = float(example.uniform(-0.2, 0.2));
    std::size_t at = 0;
    for (std::size_t row = 0; row < shape_[0]; ++row) {
      const double y = double(row) / double(shape_[0]);
      for (std::size_t column = 0; column < shape_[1]; ++column) {
        const double x = double(column) / double(shape_[1]);
        const double wave = 8 + across * x + along * y + phase;  // above 0
        const double part = wave - double(int(wave));            // fraction of a wave, 0 to 1
        const float mix = float(std::abs(2 * part - 1));
        const double dx = x - spot_x, dy = y - spot_y;
        const bool inside = dx * dx + dy * dy < radius * radius;
        for (std::size_t c = 0; c < kChannels; ++c) {
          const float striped = one[c] + (other[c] - one[c]) * mix;
          input[at++] = (inside ? third[c] : striped) + shift[c];
        }
      }
    }
  }

  // Adds noise from -0.4 to 0.4, a byte each, sixteen numbers per draw. Clamps the results to -1 ..
  // 1.
  void add_noise(std::uint64_t index, std::span<float> input) const {
    constexpr std::size_t kOfADraw = 16;
    for (std::size_t at = 0; at < input.size(); at += kOfADraw) {
      const auto words = random_bits(noise_key_, index, at / kOfADraw);
      for (std::size_t i = 0; i < std::min(kOfADraw, input.size() - at); ++i) {
        const float byte = float(words[i / 4] >> 8 * (i % 4) & 0xff);
        input[at + i] = std::clamp(input[at + i] + (byte / 255 - 0.5f) * 0.8f, -1.0f, 1.0f);
      }
    }
  }

  Shape shape_;
  std::size_t classes_;
  std::uint64_t count_;
  std::string part_;
  std::uint64_t classes_key_, examples_key_, noise_key_, fingerprint_;
};

}  // namespace

Sets generated_images(ImagesOptions options) {
  constexpr std::size_t kMostSide = 1 << 14, kMostClasses = 1 << 24;  // targets are float32
  constexpr std::uint64_t kMost = std::uint64_t(std::numeric_limits<std::int64_t>::max()) / 64;
  require(options.height > 0 && options.height <= kMostSide && options.width > 0 &&
              options.width <= kMostSide,
          "data: generated images of {}x{}; 1 to {} each way can be", options.height, options.width,
          kMostSide);
  require(options.classes > 0 && options.classes <= kMostClasses,
          "data: generated images of {} classes; 1 to {} can be", options.classes, kMostClasses);
  require(options.train > 0, "data: 0 generated images to train with; at least 1 is needed");
  require(options.train <= kMost && options.test <= kMost,
          "data: {} and {} generated images: too many", options.train, options.test);
  Sets sets;
  sets.train = std::make_shared<Images>(options, options.train, "train");
  if (options.test > 0) sets.test = std::make_shared<Images>(options, options.test, "test");
  return sets;
}

}  // namespace lockstep::engine::data
