// SPDX-License-Identifier: MIT
// Random crops and flips of training images, as He et al. 2016 do for CIFAR-10. An image is padded
// with zeros (the mean there), and a random window of its size is taken. It is then mirrored left
// to right or not. The draw is a function of (seed, example, epoch), independent of the number of
// replicas, threads and restarts. `read`, which evaluations call, returns the image unchanged.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/data/dataset.h"

namespace lockstep::engine::data {

struct AugmentOptions {
  std::size_t pad = 4;  // pixels on each side; 0: no crop
  bool flip = true;
  std::uint64_t seed = 1;
  float around = 0;  // value of padding pixels, as in Sets
};
// Describes the changes to one image in one epoch. The window begins `down` rows and `right`
// columns from the corner of the padded image; both are 0 .. 2 * pad.
struct Augmentation {
  std::size_t down = 0, right = 0;
  bool flip = false;
  bool operator==(const Augmentation&) const = default;
};
Augmentation draw_augmentation(const AugmentOptions& options, std::uint64_t example,
                               std::int64_t epoch);
// Augments in place, without extra memory, in about a nanosecond per number.
void apply(const Augmentation& augmentation, std::size_t pad, const Shape& shape,
           std::span<float> image, float around = 0);

// Returns the data set with augmentation, which is part of its description and fingerprint. Returns
// `dataset` itself if there is nothing to do. Throws Error(kInvalid) for examples that are not
// images [height, width, channels], and for padding that is not smaller than they are.
std::shared_ptr<const Dataset> augmented(std::shared_ptr<const Dataset> dataset,
                                         AugmentOptions options = {});

}  // namespace lockstep::engine::data
