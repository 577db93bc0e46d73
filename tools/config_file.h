// SPDX-License-Identifier: MIT
// --config FILE: a JSON object whose keys are the long flags of the command without dashes, e.g.
// {"model": "mnist_cnn", "epochs": 6, "json": true}. Its values become arguments, of those flags
// that are not on the command line: what the file says of these is not looked at.
#pragma once
#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace lockstep::tools {

struct Configured {
  std::vector<std::string> arguments = {};
  std::string file = {};                  // empty: none was named
  std::vector<std::string> of_file = {};  // flags that have their value from it, without dashes
};
// `arguments`, without the program's name, of a command whose flags `command` knows: with those of
// the file put in behind the command's name, where --config names one. One line that names the file
// is in the Error(kIo) where it cannot be read, and in the Error(kInvalid) where it is not such an
// object, or holds a flag that there is not or a value that the flag may not have.
Configured with_config(CLI::App& command, std::vector<std::string> arguments);

// `what` is wrong with flags, as it was found later: says of each that `what` names, and that has
// its value from the file, that it is so.
std::string with_file(const Configured& configured, const std::string& what);

}  // namespace lockstep::tools
