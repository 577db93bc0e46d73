// SPDX-License-Identifier: MIT
// From the flag --data to data sets: nothing (digits that the program draws), "random" (one batch
// of random images of the model's shape, kept in memory), or a folder of IDX files.
#pragma once
#include <string>

#include "engine/data/sets.h"
#include "engine/nn/graph_spec.h"

namespace lockstep::tools {

struct DataChoice {
  std::string data;               // the flag
  std::size_t batch = 1;          // examples of random data
  std::uint64_t examples = 8000;  // generated digits for training
  std::uint64_t seed = 1;
};
engine::data::Sets choose_data(const DataChoice& choice, const engine::GraphSpec& graph);

}  // namespace lockstep::tools
