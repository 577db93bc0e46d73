// SPDX-License-Identifier: MIT
// Reads --config FILE: a JSON object of at most 64 KiB whose keys are the long flags of the command
// or their aliases, without dashes, e.g. {"model": "mnist_cnn", "epochs": 6, "json": true}. Numbers
// are JSON numbers, texts are strings, sizes may be either, and flags without a value are true or
// false. The values become arguments, except for flags that are on the command line: their values
// in the file are not checked. If the command line has --steps, the file's epochs are ignored, and
// vice versa.
#pragma once
#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace lockstep::tools {

struct Configured {
  std::vector<std::string> arguments = {};
  std::string file = {};                  // empty: no file
  std::vector<std::string> of_file = {};  // flags set by the file, without dashes
};
// Returns `arguments` (without the program's name) with the file's arguments inserted after the
// command's name, if --config names a file. `command` knows the flags. Throws Error(kIo) if the
// file cannot be read. Throws Error(kInvalid) if it is not such an object, or has an unknown flag
// or a value that the flag does not allow. The message is one line that names the file.
Configured with_config(CLI::App& command, std::vector<std::string> arguments);

// Returns the message `what` about wrong flags, extended by the named flags that have their value
// from the file.
std::string with_file(const Configured& configured, const std::string& what);

}  // namespace lockstep::tools
