// SPDX-License-Identifier: MIT
// Format of a flag in --help. The left column has its names and whether it takes a number or a
// text; the right column has its description, allowed values and default. -h shows one line per
// flag: its main name, and as much of the rest as fits.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace lockstep::tools {

class Help : public CLI::Formatter {
 public:
  explicit Help(bool brief) : brief_(brief) {}
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_group(std::string group, bool positional,
                         std::vector<const CLI::Option*> options) const override;
  std::string make_option_name(const CLI::Option* option, bool positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
  std::string make_footer(const CLI::App* app) const override;

 private:
  const bool brief_;
};

// Returns the names as one types them: "-b", "--min", "--minbytes"; none of a positional argument.
std::vector<std::string> spellings(const CLI::Option& option);
enum class ValueKind { kNone, kNumber, kText };
ValueKind value_kind(const CLI::Option& option);

// Returns the description with the allowed values and the default.
std::string full_description(const CLI::Option& option);
// Returns the beginning of the description, up to the first explanation.
std::string summary(const CLI::Option& option);

// Adds --help after all other flags, in the group "General", and example lines at the end. Before
// these --help has `fields`, the fields of what the command prints.
void end_help(CLI::App& app, const std::string& examples, const std::string& fields = {});

}  // namespace lockstep::tools
