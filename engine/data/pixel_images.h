// SPDX-License-Identifier: MIT
// A data set of images and classes in memory, with one byte per number of an image. `read` turns it
// into (v / 255 - mean) / deviation of the number's channel, in about a nanosecond per number.
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
    Shape shape;       // shape of one image
    std::size_t classes = 0;
    std::vector<std::uint8_t> pixels;   // image after image
    std::vector<std::uint32_t> labels;  // one per image, below `classes`
    std::uint64_t fingerprint = 0;
    // These have one value for all channels, or one per channel (the last extent). The defaults
    // give -1 to 1.
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
  float black() const { return values_[0][0]; }  // byte 0 in the first channel

 private:
  Content content_;
  std::vector<std::array<float, 256>> values_;  // value of each byte, per channel or shared
};

// Returns the CRC-32 from which fingerprints are made.
std::uint64_t checksum(const std::vector<std::uint8_t>& bytes);

}  // namespace lockstep::engine::data
