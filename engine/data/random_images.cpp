// SPDX-License-Identifier: MIT
#include <fmt/core.h>

#include <limits>
#include <new>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/random.h"
#include "engine/data/pixel_images.h"
#include "engine/data/sets.h"

namespace lockstep::engine::data {

Sets random_images(Shape input, std::size_t classes, std::uint64_t count, std::uint64_t seed) {
  const std::size_t elements = input.elements();
  require(elements > 0, "data: random images of {}: every extent needs at least 1",
          to_string(input));
  require(classes > 0 && classes <= 1 << 24, "data: random images of {} classes; 1 to {} can be",
          classes, 1 << 24);  // targets are floats, which count this far
  require(count > 0, "data: 0 random images; at least 1 is needed");
  require(count <= std::numeric_limits<std::int64_t>::max() / 8 / elements,
          "data: {} random images of {}: too many", count, to_string(input));
  PixelImages::Content content;
  content.name = "random images";
  content.shape = input;
  content.classes = classes;
  content.fingerprint = stream_key(
      seed, fmt::format("random images {} of {}, {} classes", count, to_string(input), classes));
  try {
    content.pixels.resize(count * elements);
    content.labels.resize(count);
  } catch (const std::bad_alloc&) {
    fail(Code::kIo, "data: {} random images of {}: {} bytes of memory are not to be had", count,
         to_string(input), count * elements);
  }
  const std::uint64_t key = stream_key(seed, "random images");
  for (std::uint64_t i = 0; i < count; ++i) {
    Random random(key, i);
    content.labels[i] = std::uint32_t(random.below(classes));
    std::uint32_t bits = 0;
    for (std::size_t j = 0; j < elements; ++j, bits >>= 8) {
      if (j % 4 == 0) bits = random.bits();
      content.pixels[i * elements + j] = std::uint8_t(bits);
    }
  }
  Sets sets;
  sets.train = std::make_shared<PixelImages>(std::move(content));
  return sets;
}

}  // namespace lockstep::engine::data
