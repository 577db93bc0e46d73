// SPDX-License-Identifier: MIT
#include "engine/data/augmented.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/random.h"

namespace lockstep::engine::data {
namespace {

class Augmented final : public Dataset {
 public:
  Augmented(std::shared_ptr<const Dataset> dataset, AugmentOptions options)
      : dataset_(std::move(dataset)), options_(options), shape_(dataset_->input_shape()) {}
  std::uint64_t size() const override { return dataset_->size(); }
  Shape input_shape() const override { return shape_; }
  std::size_t target_columns() const override { return dataset_->target_columns(); }
  std::size_t classes() const override { return dataset_->classes(); }
  void read(std::uint64_t index, std::span<float> input, std::span<float> target) const override {
    dataset_->read(index, input, target);
  }
  void read_in(std::int64_t epoch, std::uint64_t index, std::span<float> input,
               std::span<float> target) const override {
    dataset_->read_in(epoch, index, input, target);
    apply(draw_augmentation(options_, index, epoch), options_.pad, shape_, input, options_.around);
  }
  std::string describe() const override { return dataset_->describe() + what(); }
  std::uint64_t fingerprint() const override { return stream_key(dataset_->fingerprint(), what()); }

 private:
  std::string what() const {
    std::string text;
    const std::string of = options_.around == 0 ? "" : fmt::format(" of {}", options_.around);
    if (options_.pad > 0)
      text += fmt::format(", cropped with {} pixels{} around", options_.pad, of);
    if (options_.flip) text += ", flipped";
    return text + fmt::format(" by seed {}", options_.seed);
  }

  std::shared_ptr<const Dataset> dataset_;
  AugmentOptions options_;
  Shape shape_;
};

}  // namespace

// Uses the words of one draw. An offset is a word scaled to 0 .. 2 * pad; of 2^32 words, the counts
// per offset differ by at most one.
Augmentation draw_augmentation(const AugmentOptions& options, std::uint64_t example,
                               std::int64_t epoch) {
  const std::uint64_t key = stream_key(options.seed, "augmentation");
  const auto words = random_bits(key, example, std::uint64_t(epoch));
  const std::uint64_t offsets = 2 * options.pad + 1;
  return {.down = std::size_t(words[0] * offsets >> 32),
          .right = std::size_t(words[1] * offsets >> 32),
          .flip = options.flip && words[2] >> 31 != 0};
}

// Row y of the window is row y + down - pad of the image, and likewise for columns. Rows from below
// are moved from the top, and rows from above from the bottom, so none is overwritten before it is
// read. Pixels outside the image become `around`.
void apply(const Augmentation& augmentation, std::size_t pad, const Shape& shape,
           std::span<float> image, float around) {
  const std::ptrdiff_t height = std::ptrdiff_t(shape[0]), width = std::ptrdiff_t(shape[1]);
  const std::ptrdiff_t channels = std::ptrdiff_t(shape[2]), line = width * channels;
  const std::ptrdiff_t down = std::ptrdiff_t(augmentation.down) - std::ptrdiff_t(pad);
  const std::ptrdiff_t right =
      (std::ptrdiff_t(augmentation.right) - std::ptrdiff_t(pad)) * channels;
  for (std::ptrdiff_t i = 0; i < height; ++i) {
    const std::ptrdiff_t y = down >= 0 ? i : height - 1 - i;
    const auto to = image.begin() + y * line;
    const auto from = [&] { return to + down * line; };
    if (y + down < 0 || y + down >= height) {
      std::fill_n(to, line, around);
    } else if (right > 0 || (right == 0 && down != 0)) {
      std::fill(std::copy(from() + right, from() + line, to), to + line, around);
    } else if (right < 0) {
      std::fill(to, std::copy_backward(from(), from() + line + right, to + line), around);
    }
    if (!augmentation.flip) continue;
    for (std::ptrdiff_t a = 0, b = width - 1; a < b; ++a, --b) {
      std::swap_ranges(to + a * channels, to + (a + 1) * channels, to + b * channels);
    }
  }
}

std::shared_ptr<const Dataset> augmented(std::shared_ptr<const Dataset> dataset,
                                         AugmentOptions options) {
  if (options.pad == 0 && !options.flip) return dataset;
  const Shape shape = dataset->input_shape();
  require(shape.rank() == 3, "data: only images can be cropped and flipped, and {} has none",
          dataset->describe());
  require(options.pad < std::min(shape[0], shape[1]),
          "data: {} pixels around images of {}: should be fewer than their height and width",
          options.pad, to_string(shape));
  return std::make_shared<Augmented>(std::move(dataset), options);
}

}  // namespace lockstep::engine::data
