// SPDX-License-Identifier: MIT
// --config FILE: a JSON object whose keys are the long flags of the command without dashes, e.g.
// {"model": "mnist_cnn", "epochs": 6, "json": true}. Its values become arguments that stand before
// those of the command line, and of a flag that is given twice the last one counts.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace lockstep::tools {

// `arguments`, without the program's name, of a command whose flags `command` knows: with those of
// the file put in behind the command's name, where --config names one. Error(kInvalid), one line
// that names the file, where it cannot be read, is not such an object, or holds a flag that there
// is not or a value of another type.
std::vector<std::string> with_config(const CLI::App& command, std::vector<std::string> arguments);

}  // namespace lockstep::tools
