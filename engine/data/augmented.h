// SPDX-License-Identifier: MIT
// Images that are cropped and flipped at random while training, as He et al. 2016 do for CIFAR-10:
// zeros, the mean there, around the image, a window of its size somewhere in that, mirrored left to
// right or not. The draw is a function of (seed, example, epoch): it depends on no number of
// replicas, no thread and no restart. `read`, as evaluations call it, gives the image as it is.
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
  float around = 0;  // the numbers of these pixels, as Sets has it
};
// What is done to one image in one epoch. The window begins `down` rows and `right` columns from
// the corner of the padded image; both 0 .. 2 * pad.
struct Augmentation {
  std::size_t down = 0, right = 0;
  bool flip = false;
  bool operator==(const Augmentation&) const = default;
};
Augmentation draw_augmentation(const AugmentOptions& options, std::uint64_t example,
                               std::int64_t epoch);
// Does it in place: no memory, about a nanosecond a number.
void apply(const Augmentation& augmentation, std::size_t pad, const Shape& shape,
           std::span<float> image, float around = 0);

// The data set with that, part of its description and fingerprint; itself, where there is nothing
// to do. Throws Error(kInvalid) for examples that are no images [height, width, channels], and for
// padding that is not smaller than they are.
std::shared_ptr<const Dataset> augmented(std::shared_ptr<const Dataset> dataset,
                                         AugmentOptions options = {});

}  // namespace lockstep::engine::data
