// SPDX-License-Identifier: MIT
#include <fmt/core.h>

#include <limits>
#include <new>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/random.h"
#include "engine/data/digit_painter.h"
#include "engine/data/pixel_images.h"
#include "engine/data/sets.h"

namespace lockstep::engine::data {
namespace {

// Makes the digits of one part. Train and test use streams with different names.
std::shared_ptr<const PixelImages> painted(std::uint64_t count, std::uint64_t seed,
                                           const std::string& part) {
  require(count <= std::numeric_limits<std::int64_t>::max() / DigitPainter::kPixels,
          "data: {} generated digits: too many", count);
  PixelImages::Content content;
  content.name = "generated digits/" + part;
  content.shape = {DigitPainter::kSide, DigitPainter::kSide, 1};
  content.classes = 10;
  content.fingerprint = stream_key(seed, fmt::format("generated digits 1 {} {}", part, count));
  try {
    content.pixels.resize(count * DigitPainter::kPixels);
    content.labels.resize(count);
  } catch (const std::bad_alloc&) {
    fail(Code::kIo, "data: {} generated digits: {} bytes of memory are not to be had", count,
         count * DigitPainter::kPixels);
  }
  DigitPainter painter(stream_key(seed, "generated digits " + part));
  const std::span<std::uint8_t> pixels(content.pixels);
  for (std::uint64_t i = 0; i < count; ++i) {
    content.labels[i] = std::uint32_t(
        painter.paint(i, pixels.subspan(i * DigitPainter::kPixels, DigitPainter::kPixels)));
  }
  return std::make_shared<PixelImages>(std::move(content));
}

}  // namespace

Sets generated_digits(DigitsOptions options) {
  require(options.train > 0, "data: 0 generated digits to train with; at least 1 is needed");
  Sets sets;
  const auto train = painted(options.train, options.seed, "train");
  sets.train = train;
  sets.around = train->black();
  if (options.test > 0) sets.test = painted(options.test, options.seed, "test");
  return sets;
}

}  // namespace lockstep::engine::data
