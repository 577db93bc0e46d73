// SPDX-License-Identifier: MIT
// --config FILE for CLI11: a JSON object whose keys are the long flags without dashes, e.g.
// {"model": "mnist_cnn", "epochs": 6, "json": true}. Flags on the command line win. Anything else
// in the file is a CLI::FileError with one line.
#pragma once
#include <CLI/CLI.hpp>
#include <istream>
#include <string>
#include <vector>

namespace lockstep::tools {

class JsonConfig : public CLI::Config {
 public:
  std::string to_config(const CLI::App* app, bool defaults, bool descriptions,
                        std::string prefix) const override;
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override;
};

}  // namespace lockstep::tools
