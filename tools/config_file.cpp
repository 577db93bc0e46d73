// SPDX-License-Identifier: MIT
#include "tools/config_file.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "engine/base/error.h"

namespace lockstep::tools {
namespace {

using engine::Code;
using engine::fail;
using engine::require;
using nlohmann::json;

const std::string kFlag = "--config";
constexpr std::size_t kMostBytes = 65536;

// The last one counts, as for every flag.
std::optional<std::string> file_of(const std::vector<std::string>& arguments) {
  std::optional<std::string> file;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == kFlag && i + 1 < arguments.size()) file = arguments[i + 1];
    if (arguments[i].starts_with(kFlag + "=")) file = arguments[i].substr(kFlag.size() + 1);
  }
  return file;
}

json read(const std::string& file) {
  std::ifstream stream(file);
  stream.peek();  // a folder can be opened, and not read
  require(stream.is_open() && !stream.bad(), "{}: {} cannot be read; it must be a JSON file", kFlag,
          file);
  std::string text(kMostBytes + 1, '\0');
  stream.read(text.data(), std::streamsize(text.size()));
  text.resize(std::size_t(stream.gcount()));
  require(text.size() <= kMostBytes,
          "{}: {} is longer than the {} bytes that a file of flags may be", kFlag, file,
          kMostBytes);
  json values = json::parse(text, nullptr, false);
  require(values.is_object(), "{}: {} is not one JSON object, such as {{\"epochs\": 6}}", kFlag,
          file);
  return values;
}

// The arguments of one entry of the file.
void append(std::vector<std::string>& arguments, const CLI::Option& option, const std::string& name,
            const json& value, const std::string& file) {
  auto wants = [&](bool right, const char* what) {
    require(right, "{}: {}: \"{}\" must be {}, not {}", kFlag, file, name, what, value.dump());
  };
  if (option.get_items_expected_min() == 0) {  // takes no value
    wants(value.is_boolean(), "true or false");
    arguments.push_back(fmt::format("--{}={}", name, value.dump()));
  } else if (option.get_type_name().starts_with("TEXT")) {
    wants(value.is_string(), "a string");
    arguments.push_back("--" + name);
    arguments.push_back(value.get<std::string>());
  } else {
    wants(value.is_number(), "a number");
    arguments.push_back(fmt::format("--{}={}", name, value.dump()));
  }
}

}  // namespace

std::vector<std::string> with_config(const CLI::App& command, std::vector<std::string> arguments) {
  const std::optional<std::string> file = file_of(arguments);
  if (!file) return arguments;
  std::vector<std::string> from_file;
  const json values = read(*file);
  for (const auto& [name, value] : values.items()) {
    const CLI::Option* option = command.get_option_no_throw("--" + name);
    require(option != nullptr && "--" + name != kFlag && name != "help",
            "{}: {}: \"{}\" is not a flag of {}; lockstep {} --help lists them", kFlag, *file, name,
            command.get_name(), command.get_name());
    append(from_file, *option, name, value, *file);
  }
  const auto at = std::find(arguments.begin(), arguments.end(), command.get_name());
  arguments.insert(at == arguments.end() ? at : at + 1, from_file.begin(), from_file.end());
  return arguments;
}

}  // namespace lockstep::tools
