// SPDX-License-Identifier: MIT
// How --help shows a flag: on the left its name and whether it takes a number or a text, on the
// right what it is, what it may be, and its default.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace lockstep::tools {

class Help : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
};

}  // namespace lockstep::tools
