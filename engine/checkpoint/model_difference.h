// SPDX-License-Identifier: MIT
// Where the model of a checkpoint is another than that of a run, for the message that refuses it.
// Models are compared by their descriptions (GraphSpec::describe). Where one option of a model of
// the same name is the difference, it is told by its name and both values, else by the first line
// that differs.
#pragma once
#include <string>

#include "engine/base/option.h"

namespace lockstep::engine {

struct ModelDifference {
  std::string text;    // "label smoothing 0 there, 0.1 here"
  std::string remedy;  // "label smoothing 0"; empty: it is no option
  Option option = Option::kNone;
};

ModelDifference model_difference(const std::string& there, const std::string& here);

}  // namespace lockstep::engine
