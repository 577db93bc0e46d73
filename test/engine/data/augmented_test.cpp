// SPDX-License-Identifier: MIT
// Tests augmented images. The draw depends on (seed, example, epoch) alone, not on the reader or
// the order. Each crop and flip occurs as often as it should and does what it says.
#include "engine/data/augmented.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/data/pipeline.h"
#include "engine/data/sets.h"

namespace lockstep::engine::data {
namespace augmented_test {

using testing::Each;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Image = std::vector<float>;
using Data = std::shared_ptr<const Dataset>;

constexpr std::uint64_t kExamples = 12;
const Shape kShape = {5, 7, 3};

Data plain() {
  return random_images(kShape, 4, kExamples, 3).train;
}

Image image_in(const Dataset& data, std::int64_t epoch, std::uint64_t index) {
  Image image(data.input_shape().elements()), target(1);
  data.read_in(epoch, index, image, target);
  return image;
}

Image image(const Dataset& data, std::uint64_t index) {
  Image image(data.input_shape().elements()), target(1);
  data.read(index, image, target);
  return image;
}

// Returns the window cut out of a padded copy, pixel by pixel.
Image reference(const Image& image, const Augmentation& a, std::size_t pad) {
  const std::size_t height = kShape[0], width = kShape[1], channels = kShape[2];
  Image out;
  for (std::size_t y = 0; y < height; ++y) {
    for (std::size_t x = 0; x < width; ++x) {
      const std::size_t column = a.flip ? width - 1 - x : x;
      const std::size_t from_y = y + a.down, from_x = column + a.right;  // in the padded image
      const bool inside =
          from_y >= pad && from_y < pad + height && from_x >= pad && from_x < pad + width;
      for (std::size_t c = 0; c < channels; ++c) {
        out.push_back(inside ? image[((from_y - pad) * width + from_x - pad) * channels + c]
                             : 0.0f);
      }
    }
  }
  return out;
}

TEST(Augmented, EveryCropAndFlipIsTheWindowOfThePaddedImage) {
  const Image whole = image(*plain(), 0);
  for (const std::size_t pad : {0, 1, 4}) {
    for (std::size_t down = 0; down <= 2 * pad; ++down) {
      for (std::size_t right = 0; right <= 2 * pad; ++right) {
        for (const bool flip : {false, true}) {
          const Augmentation a{down, right, flip};
          Image moved = whole;
          apply(a, pad, kShape, moved);
          ASSERT_EQ(moved, reference(whole, a, pad)) << pad << ' ' << down << ' ' << right << flip;
        }
      }
    }
  }
}

TEST(Augmented, PixelsOfThePaddingAreZeroOrWhatIsSaid) {
  for (const float around : {0.0f, -1.0f})
    for (const std::size_t right : {0, 4, 8}) {
      Image ones(kShape.elements(), 1.0f);
      apply({.down = 0, .right = right, .flip = false}, 4, kShape, ones, around);
      for (std::size_t y = 0; y < 5; ++y) {
        for (std::size_t x = 0; x < 7; ++x) {
          const bool inside = y >= 4 && x + right >= 4 && x + right < 11;
          for (std::size_t c = 0; c < 3; ++c)
            EXPECT_EQ(ones[(y * 7 + x) * 3 + c], inside ? 1.0f : around) << y << ' ' << x;
        }
      }
    }
}

// Padding is black for digits, as their background, and the mean for color images (He et al.).
TEST(Augmented, AroundDigitsItIsAsBlackAsTheirGround) {
  const Sets digits = generated_digits({.train = 4, .test = 0});
  const auto framed = augmented(digits.train, {.flip = false, .around = digits.around});
  EXPECT_EQ(digits.around, -1);
  bool moved = false;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    const Augmentation a = draw_augmentation({.flip = false}, 0, epoch);
    if (a.down > 0) continue;  // four new rows are above
    moved = true;
    const Image above = image_in(*framed, epoch, 0);
    EXPECT_THAT(Image(above.begin(), above.begin() + 4 * 28), Each(digits.around));
  }
  EXPECT_TRUE(moved);
  EXPECT_THAT(framed->describe(), HasSubstr("cropped with 4 pixels of -1 around"));
  EXPECT_NE(framed->fingerprint(), augmented(digits.train, {.flip = false})->fingerprint());
  EXPECT_EQ(generated_images({.train = 1, .test = 0}).around, 0);
}

TEST(Augmented, FlippedTwiceIsTheImageAndFlippedOnceIsNot) {
  const Image whole = image(*plain(), 1);
  Image flipped = whole;
  apply({.flip = true}, 0, kShape, flipped);
  EXPECT_NE(flipped, whole);
  apply({.flip = true}, 0, kShape, flipped);
  EXPECT_EQ(flipped, whole);
}

TEST(Augmented, WithoutPaddingAndFlipItIsTheDataItself) {
  const Data data = plain();
  EXPECT_EQ(augmented(data, {.pad = 0, .flip = false}), data);
  EXPECT_EQ(image_in(*data, 3, 2), image(*data, 2));
}

// Each of the 81 offsets is expected 500 times; 120 are more than five standard deviations.
TEST(Augmented, EveryOffsetOccursEquallyOftenAndHalfAreFlipped) {
  constexpr std::uint64_t kDraws = 81 * 500;
  std::map<std::pair<std::size_t, std::size_t>, int> seen;
  int flipped = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const Augmentation a =
        draw_augmentation({.pad = 4, .flip = true, .seed = 5}, i / 10, std::int64_t(i % 10));
    ASSERT_LE(a.down, 8u);
    ASSERT_LE(a.right, 8u);
    ++seen[{a.down, a.right}];
    flipped += a.flip;
    EXPECT_FALSE(draw_augmentation({.pad = 4, .flip = false, .seed = 5}, i, 0).flip);
  }
  EXPECT_EQ(seen.size(), 81u);
  for (const auto& [offset, count] : seen) EXPECT_NEAR(count, 500, 120);
  EXPECT_NEAR(flipped, int(kDraws) / 2, 500);
}

TEST(Augmented, AnImageDependsOnSeedExampleAndEpochAndNotOnTheOrderOfReading) {
  const Data data = augmented(plain(), {.pad = 2, .seed = 7});
  std::vector<Image> first;
  for (std::uint64_t i = 0; i < kExamples; ++i) first.push_back(image_in(*data, 5, i));
  const Data again = augmented(plain(), {.pad = 2, .seed = 7});
  int other_epoch = 0, other_seed = 0;
  const Data reseeded = augmented(plain(), {.pad = 2, .seed = 8});
  for (std::uint64_t i = kExamples; i-- > 0;) {
    other_epoch += image_in(*again, 6, i) != first[i];
    other_seed += image_in(*reseeded, 5, i) != first[i];
    EXPECT_EQ(image_in(*again, 5, i), first[i]);
  }
  EXPECT_GT(other_epoch, int(kExamples) / 2);
  EXPECT_GT(other_seed, int(kExamples) / 2);
}

TEST(Augmented, ThreadsReadTheSame) {
  const Data data = augmented(plain(), {.pad = 2, .seed = 7});
  std::vector<std::vector<Image>> read(4);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < read.size(); ++t) {
      threads.emplace_back([&, t] {
        for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
          for (std::uint64_t i = 0; i < kExamples; ++i)
            read[t].push_back(image_in(*data, epoch, i));
        }
      });
    }
  }
  EXPECT_THAT(read, Each(read[0]));
  EXPECT_EQ(read[0][19 * kExamples + 3], image_in(*data, 19, 3));
}

TEST(Augmented, AnEvaluationReadsPlainly) {
  const Data data = plain(), changed = augmented(data, {.pad = 2});
  for (std::uint64_t i = 0; i < kExamples; ++i) EXPECT_EQ(image(*changed, i), image(*data, i));
  Pipeline pipeline(*changed, {.shuffle = false, .plain = true});
  pipeline.request(3, {0, kExamples});
  const Batch& batch = pipeline.take();
  for (std::uint64_t i = 0; i < kExamples; ++i) {
    const auto row = batch.inputs.begin() + std::ptrdiff_t(i * kShape.elements());
    EXPECT_EQ(Image(row, row + std::ptrdiff_t(kShape.elements())), image(*data, i));
  }
}

// Returns the images that two epochs of training on `ranks` replicas read, by (epoch, example).
// With `stop`, each step has new pipelines, as after a restart.
std::map<std::pair<std::int64_t, std::int64_t>, Image> trained(const Dataset& data, int ranks,
                                                               int threads, bool stop) {
  std::map<std::pair<std::int64_t, std::int64_t>, Image> seen;
  const PipelineOptions options{.seed = 9, .threads = threads};
  std::vector<std::unique_ptr<Pipeline>> pipelines(static_cast<std::size_t>(ranks));
  for (DataPosition at; at.epoch < 2; at = after_batch(at, data.size(), 5)) {
    for (int rank = 0; rank < ranks; ++rank) {
      auto& pipeline = pipelines[std::size_t(rank)];
      if (!pipeline || stop) pipeline = std::make_unique<Pipeline>(data, options);
      pipeline->request(at.epoch, share_of(next_batch(at, data.size(), 5), rank, ranks));
      const Batch& batch = pipeline->take();
      for (std::size_t i = 0; i < batch.rows(); ++i) {
        const auto row = batch.inputs.begin() + std::ptrdiff_t(i * kShape.elements());
        seen[{at.epoch, batch.ids[i]}] = Image(row, row + std::ptrdiff_t(kShape.elements()));
      }
    }
  }
  return seen;
}

TEST(Augmented, TrainingReadsTheSameForAnyNumberOfReplicasAndThreadsAndAfterARestart) {
  const Data data = augmented(plain(), {.pad = 2, .seed = 7});
  const auto one = trained(*data, 1, 1, false);
  ASSERT_EQ(one.size(), 2 * kExamples);
  for (const auto& [at, image] : one) {
    EXPECT_EQ(image, image_in(*data, at.first, std::uint64_t(at.second)));
  }
  EXPECT_EQ(trained(*data, 3, 1, false), one);
  EXPECT_EQ(trained(*data, 2, 3, false), one);
  EXPECT_EQ(trained(*data, 1, 1, true), one);
}

TEST(Augmented, ADescriptionAndAFingerprintTellSettingsApart) {
  const Data data = plain();
  const Data crop = augmented(data, {.pad = 4, .flip = false, .seed = 2});
  EXPECT_EQ(crop->describe(), data->describe() + ", cropped with 4 pixels around by seed 2");
  EXPECT_EQ(augmented(data)->describe(),
            data->describe() + ", cropped with 4 pixels around, flipped by seed 1");
  EXPECT_EQ(crop->fingerprint(), augmented(plain(), {4, false, 2})->fingerprint());
  for (const AugmentOptions& other :
       {AugmentOptions{3, false, 2}, {4, true, 2}, {4, false, 3}, {0, true, 2}}) {
    EXPECT_NE(crop->fingerprint(), augmented(data, other)->fingerprint());
  }
  EXPECT_NE(crop->fingerprint(), data->fingerprint());
}

TEST(Augmented, WhatIsNoImageAndTooMuchPaddingAreRefused) {
  EXPECT_THAT([] { augmented(generated_clicks({.train = 2, .test = 0}).train); },
              ThrowsMessage<Error>(HasSubstr("only images can be cropped")));
  EXPECT_THAT([] { augmented(plain(), {.pad = 5}); },
              ThrowsMessage<Error>(HasSubstr("5 pixels around images of 5x7x3")));
}

}  // namespace augmented_test
}  // namespace lockstep::engine::data
