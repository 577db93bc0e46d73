// SPDX-License-Identifier: MIT
#include "tools/config_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "collectives/topology/json_reading.h"
#include "engine/base/brief.h"
#include "engine/base/error.h"
#include "engine/base/plain_file.h"
#include "engine/base/spelling.h"

namespace lockstep::tools {
namespace {

using engine::brief;
using engine::require;
using nlohmann::json;

const std::string kFlag = "--config";
constexpr std::size_t kMostConfig = 65536;

// Returns the file of the last --config: the last value counts, as for every flag.
std::optional<std::string> file_of(const std::vector<std::string>& arguments) {
  std::optional<std::string> file;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == kFlag && i + 1 < arguments.size()) file = arguments[i + 1];
    if (arguments[i].starts_with(kFlag + "=")) file = arguments[i].substr(kFlag.size() + 1);
  }
  return file;
}

json read_config(const std::string& file) {
  const std::string what = kFlag + ": " + brief(file);
  return collectives::json_reading::parse(engine::read_text(file, what, kMostConfig), what);
}

// Returns whether the flag is present. `flag`: "--epochs" or "-q".
bool on_command_line(const std::vector<std::string>& arguments, const std::string& flag) {
  return std::ranges::any_of(arguments, [&](const std::string& argument) {
    return argument == flag || argument.starts_with(flag + "=");
  });
}

// Returns whether the option is present by one of its names, long or short.
bool on_command_line(const std::vector<std::string>& arguments, const CLI::Option& option) {
  const auto stands = [&](const char* dashes) {
    return [&arguments, dashes](const std::string& name) {
      return on_command_line(arguments, dashes + name);
    };
  };
  return std::ranges::any_of(option.get_lnames(), stands("--")) ||
         std::ranges::any_of(option.get_snames(), stands("-"));
}

// Returns whether the command line has a flag that excludes the option, as --quiet excludes
// --verbose.
bool excluded_on_command_line(const std::vector<std::string>& arguments, CLI::Option& option) {
  return std::ranges::any_of(option.get_excludes(), [&](const CLI::Option* other) {
    return on_command_line(arguments, *other);
  });
}

// Returns whether the command line has the other end of a run: --epochs replaces the file's steps,
// and --steps its epochs.
bool other_end_on_command_line(const std::vector<std::string>& arguments, const std::string& name) {
  return (name == "epochs" && on_command_line(arguments, "--steps")) ||
         (name == "steps" && on_command_line(arguments, "--epochs"));
}

// Returns the complaint of the option's checks about a value; empty if it is allowed.
std::string complaint(CLI::Option& option, const std::string& value) {
  for (int i = 0;; ++i) {
    try {
      const std::string wrong = (*option.get_validator(i))(value);
      if (!wrong.empty()) return wrong;
    } catch (const CLI::OptionNotFound&) {  // no further check
      return {};
    }
  }
}

// Appends the arguments of one entry of the file.
void append(std::vector<std::string>& arguments, CLI::Option& option, const std::string& name,
            const json& value, const std::string& file) {
  auto wants = [&](bool right, const char* what) {
    require(right, "{}: {}: \"{}\" must be {}, not {}", kFlag, file, brief(name), what,
            collectives::json_reading::quoted(value));
  };
  if (option.get_items_expected_min() == 0) {  // takes no value
    wants(value.is_boolean(), "true or false");
    if (value.get<bool>()) arguments.push_back("--" + name);
  } else if (option.get_type_name().starts_with("TEXT")) {
    // A size may be a number: its type says which unit a plain number has.
    const bool size = option.get_type_name().find("alone:") != std::string::npos;
    wants(value.is_string() || (size && value.is_number()),
          size ? "a number or a string" : "a string");
    arguments.push_back("--" + name);
    arguments.push_back(value.is_string() ? value.get<std::string>() : value.dump());
  } else {
    wants(value.is_number(), "a number");
    arguments.push_back(fmt::format("--{}={}", name, value.dump()));
  }
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  const std::string wrong = value.is_boolean() ? "" : complaint(option, text);
  require(wrong.empty(), "{}: {}: \"{}\" {}", kFlag, file, name, wrong);
}

bool is_part_of_a_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '-';
}

// Returns whether the text names a flag: with two dashes, or as a separate word.
bool names(const std::string& text, const std::string& flag) {
  for (std::size_t at = 0; (at = text.find(flag, at)) != std::string::npos; ++at) {
    const std::size_t end = at + flag.size();
    if (end < text.size() && is_part_of_a_name(text[end])) continue;
    const bool dashes = at >= 2 && text.compare(at - 2, 2, "--") == 0;
    if (dashes || at == 0 || !is_part_of_a_name(text[at - 1])) return true;
  }
  return false;
}

std::vector<std::string> long_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    std::ranges::copy(option->get_lnames(), std::back_inserter(names));
  return names;
}

}  // namespace

Configured with_config(CLI::App& command, std::vector<std::string> arguments) {
  const std::optional<std::string> file = file_of(arguments);
  if (!file) return {std::move(arguments)};
  std::vector<std::string> from_file, of_file;
  const json values = read_config(*file);
  for (const auto& [name, value] : values.items()) {
    CLI::Option* option = command.get_option_no_throw("--" + name);
    const std::string hint =
        option == nullptr ? engine::did_you_mean(name, long_names(command)) : "";
    require(option != nullptr && "--" + name != kFlag && name != "help",
            "{}: {}: \"{}\" is not a flag of {}{} lockstep {} --help lists them", kFlag, *file,
            brief(name), command.get_name(), hint.empty() ? ";" : hint, command.get_name());
    const std::vector<std::string>& names = option->get_lnames();
    require(std::ranges::find(of_file, names[0]) == of_file.end(),
            "{}: {}: \"{}\" is there twice, by several of its names ({}): leave one of them out",
            kFlag, *file, names[0], fmt::join(names, ", "));
    if (on_command_line(arguments, *option) || excluded_on_command_line(arguments, *option) ||
        other_end_on_command_line(arguments, name))
      continue;
    append(from_file, *option, name, value, *file);
    of_file.push_back(names[0]);
  }
  const auto at = std::find(arguments.begin(), arguments.end(), command.get_name());
  arguments.insert(at == arguments.end() ? at : at + 1, from_file.begin(), from_file.end());
  return {std::move(arguments), *file, std::move(of_file)};
}

std::string with_file(const Configured& configured, const std::string& what) {
  std::string flags;
  for (const std::string& flag : configured.of_file) {
    if (names(what, flag)) flags += (flags.empty() ? "" : ", ") + flag;
  }
  return flags.empty() ? what : fmt::format("{} ({} gives {})", what, configured.file, flags);
}

}  // namespace lockstep::tools
