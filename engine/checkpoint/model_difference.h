// SPDX-License-Identifier: MIT
// Describes how the model of a checkpoint differs from that of a run, for the message that refuses
// it. Compares the models' descriptions (GraphSpec::describe). If a single option of the same model
// differs, the text has its name and both values; else it has the first line that differs.
#pragma once
#include <string>

#include "engine/base/option.h"

namespace lockstep::engine {

struct ModelDifference {
  std::string text;    // "label smoothing 0 there, 0.1 here"
  std::string remedy;  // "label smoothing 0"; empty: no option differs
  Option option = Option::kNone;
};

ModelDifference model_difference(const std::string& there, const std::string& here);

}  // namespace lockstep::engine
