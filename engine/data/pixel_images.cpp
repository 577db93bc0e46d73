// SPDX-License-Identifier: MIT
#include "engine/data/pixel_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::engine::data {

PixelImages::PixelImages(Content content) : content_(std::move(content)) {
  invariant(content_.pixels.size() == content_.labels.size() * content_.shape.elements(),
            "images and labels of different counts");
  for (std::size_t v = 0; v < value_of_.size(); ++v) {
    value_of_[v] = float((double(v) / 255 - 0.5) * 2);
  }
}

void PixelImages::read(std::uint64_t index, std::span<float> input, std::span<float> target) const {
  const std::size_t elements = content_.shape.elements();
  invariant(index < size() && input.size() == elements && target.size() == 1,
            "an image read that does not exist, or into a wrong place");
  const std::span<const std::uint8_t> pixels(content_.pixels);
  std::ranges::transform(pixels.subspan(index * elements, elements), input.begin(),
                         [&](std::uint8_t v) { return value_of_[v]; });
  target[0] = float(content_.labels[index]);
}

std::string PixelImages::describe() const {
  return fmt::format("{}: {} of {}, {} classes", content_.name, size(), to_string(content_.shape),
                     content_.classes);
}

}  // namespace lockstep::engine::data
