// SPDX-License-Identifier: MIT
// What a flag may be, checked while the command line is read: the text of --help says it, and so
// does the line about a value that is something else.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::tools {

CLI::Validator whole_number(std::int64_t least, std::int64_t most);
CLI::Validator number_above(double bound, double most);
CLI::Validator number_from(double least, double most);
CLI::Validator one_of(std::vector<std::string> words);

}  // namespace lockstep::tools
