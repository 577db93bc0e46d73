// SPDX-License-Identifier: MIT
// From the flag --data to data sets: nothing (digits that the program draws), "random" (one batch
// of random images of the model's shape, kept in memory), or a folder of IDX files.
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
  std::optional<std::uint64_t> examples;  // the flag: digits drawn for training; else 8000
  std::uint64_t seed = 1;
};
// Throws Error(kInvalid) where examples were asked for of data that are not drawn.
engine::data::Sets choose_data(const DataChoice& choice, const engine::GraphSpec& graph);

}  // namespace lockstep::tools
