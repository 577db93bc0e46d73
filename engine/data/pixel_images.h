// SPDX-License-Identifier: MIT
// A data set of images and classes in memory: a byte for each number of an image, which `read`
// turns into (v / 255 - mean) / deviation, of the number's channel. A read costs about a nanosecond
// per number.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/data/dataset.h"

namespace lockstep::engine::data {

class PixelImages : public Dataset {
 public:
  struct Content {
    std::string name;  // for `describe`: "idx digits/train"
    Shape shape;       // of one image
    std::size_t classes = 0;
    std::vector<std::uint8_t> pixels;   // image behind image
    std::vector<std::uint32_t> labels;  // one an image, below `classes`
    std::uint64_t fingerprint = 0;
    // One for all channels, or one each: the last extent's. As they stand: -1 to 1.
    std::vector<double> means = {0.5}, deviations = {0.5};
  };
  explicit PixelImages(Content content);
  std::uint64_t size() const override { return content_.labels.size(); }
  Shape input_shape() const override { return content_.shape; }
  std::size_t target_columns() const override { return 1; }
  std::size_t classes() const override { return content_.classes; }
  void read(std::uint64_t index, std::span<float> input, std::span<float> target) const override;
  std::string describe() const override;
  std::uint64_t fingerprint() const override { return content_.fingerprint; }
  float black() const { return values_[0][0]; }  // byte 0 of the first channel, or of all

 private:
  Content content_;
  std::vector<std::array<float, 256>> values_;  // of a byte, for each channel or for all
};

// CRC-32, of which fingerprints are made.
std::uint64_t checksum(const std::vector<std::uint8_t>& bytes);

}  // namespace lockstep::engine::data
