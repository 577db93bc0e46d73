// SPDX-License-Identifier: MIT
// Turns the flag --data into data sets: generated data (no flag), "random" (one batch that fits the
// model), or files. Image models get digits, or color images if they have three channels, or a
// folder of CIFAR-10's or IDX files. Models that embed ids get clicks, or a file in Criteo's
// format. engine/data/sets.h describes the files. A wrong record is refused before the first step,
// with its number and field.
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
  std::string data = {};         // --data
  std::string test = {};         // --test: test data in Criteo's format
  std::size_t global_batch = 1;  // --batch; also the number of random examples
  // --examples: generated examples for training; default: 8000, or 100,000 clicks.
  std::optional<std::uint64_t> examples = {};
  std::uint64_t seed = 1;
  // --augment: none, crop, flip or crop,flip. The padding is black for digits and the mean for
  // colors. The result is a function of seed, example and epoch, under all strategies. Test data
  // are not augmented. A run that resumes needs the same value and seed.
  std::string augment = "none";
};
// Returns the data sets. Throws Error(kInvalid) for --examples with data that are not generated,
// and for augmentation of data other than images. Also throws it if the model embeds ids in another
// form than clicks have.
engine::data::Sets choose_data(const DataChoice& choice, const engine::GraphSpec& graph);

// Returns the notes of a choice for a manifest (RunState::notes). Paths are absolute there; a path
// that is not UTF-8 is left out.
std::map<std::string, std::string> data_notes(const DataChoice& choice);
// Returns the choice of the run that wrote a checkpoint.
DataChoice recorded_choice(const engine::RunState& state);
// Returns the model of that run. Throws Error(kInvalid) if the checkpoint is not one of lockstep
// train.
engine::GraphSpec recorded_graph(const engine::RunState& state);

}  // namespace lockstep::tools
