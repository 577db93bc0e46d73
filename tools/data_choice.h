// SPDX-License-Identifier: MIT
// From the flag --data to data sets: nothing (what the program draws), "random" (one batch that
// fits the model), or files. Models of images get digits or, where they take colours, colour
// images, or a folder of CIFAR-10's or IDX files; those that embed ids get clicks, and a file in
// Criteo's format.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "engine/data/sets.h"
#include "engine/nn/graph_spec.h"

namespace lockstep::tools {

struct DataChoice {
  std::string data = {};         // the flag
  std::string test = {};         // the flag: a file of test data, in Criteo's format
  std::size_t global_batch = 1;  // the flag --batch: random data have so many examples
  // The flag: drawn for training; else 8000, clicks 100,000.
  std::optional<std::uint64_t> examples = {};
  std::uint64_t seed = 1;
  std::string augment = "none";  // the flag, of training data: none, crop, flip, crop,flip
};
// Throws Error(kInvalid) where examples were asked for of data that are not drawn, the model
// embeds ids in another form than clicks have, or what is no image is to be augmented.
engine::data::Sets choose_data(const DataChoice& choice, const engine::GraphSpec& graph);

// Returns what a manifest keeps of a choice (RunState::notes). Paths are absolute there; one that
// is not UTF-8 is left out.
std::map<std::string, std::string> data_notes(const DataChoice& choice);
// Returns the choice of the run that wrote a checkpoint.
DataChoice recorded_choice(const engine::RunState& state);

}  // namespace lockstep::tools
