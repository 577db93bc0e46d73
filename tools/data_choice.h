// SPDX-License-Identifier: MIT
// From the flag --data to data sets: nothing (what the program draws), "random" (one batch that
// fits the model), or files. Models of images get digits or, where they take colours, colour
// images, or a folder of CIFAR-10's or IDX files; those that embed ids get clicks, and a file in
// Criteo's format.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "engine/data/sets.h"
#include "engine/nn/graph_spec.h"

namespace lockstep::tools {

struct DataChoice {
  std::string data;                       // the flag
  std::size_t batch = 1;                  // examples of random data
  std::optional<std::uint64_t> examples;  // the flag: drawn for training; else 8000, clicks 100,000
  std::uint64_t seed = 1;
  std::string augment = "none";  // the flag, of training data: none, crop, flip, crop,flip
};
// Throws Error(kInvalid) where examples were asked for of data that are not drawn, the model
// embeds ids in another form than clicks have, or what is no image is to be augmented.
engine::data::Sets choose_data(const DataChoice& choice, const engine::GraphSpec& graph);

}  // namespace lockstep::tools
