// SPDX-License-Identifier: MIT
#include "engine/data/pixel_images.h"

#include <fmt/core.h>
#include <zlib.h>

#include <utility>

#include "engine/base/error.h"

namespace lockstep::engine::data {

PixelImages::PixelImages(Content content) : content_(std::move(content)) {
  invariant(content_.pixels.size() == content_.labels.size() * content_.shape.elements(),
            "images and labels of different counts");
  const std::size_t channels = content_.means.size();
  invariant(channels == content_.deviations.size() && channels > 0 &&
                (channels == 1 || channels == content_.shape[content_.shape.rank() - 1]),
            "means and deviations for other channels than images have");
  values_.resize(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t v = 0; v < values_[c].size(); ++v) {
      values_[c][v] = float((double(v) / 255 - content_.means[c]) / content_.deviations[c]);
    }
  }
}

void PixelImages::read(std::uint64_t index, std::span<float> input, std::span<float> target) const {
  const std::size_t elements = content_.shape.elements();
  invariant(index < size() && input.size() == elements && target.size() == 1,
            "an image read that does not exist, or into a wrong place");
  const auto image = std::span(content_.pixels).subspan(index * elements, elements);
  const std::size_t channels = values_.size();
  for (std::size_t c = 0; c < channels; ++c) {
    const std::array<float, 256>& value_of = values_[c];
    for (std::size_t i = c; i < elements; i += channels) input[i] = value_of[image[i]];
  }
  target[0] = float(content_.labels[index]);
}

std::string PixelImages::describe() const {
  return fmt::format("{}: {} of {}, {} classes", content_.name, size(), to_string(content_.shape),
                     content_.classes);
}

std::uint64_t checksum(const std::vector<std::uint8_t>& bytes) {
  return crc32_z(crc32_z(0, nullptr, 0), bytes.data(), bytes.size());
}

}  // namespace lockstep::engine::data
