// SPDX-License-Identifier: MIT
#include "tools/json_config.h"

#include <nlohmann/json.hpp>

namespace lockstep::tools {

using nlohmann::json;

std::string JsonConfig::to_config(const CLI::App* app, bool, bool, std::string) const {
  json values = json::object();
  for (const CLI::Option* option : app->get_options({})) {
    if (option->get_lnames().empty() || option->count() == 0) continue;
    values[option->get_lnames()[0]] = option->results().empty() ? "true" : option->results()[0];
  }
  return values.dump(2);
}

std::vector<CLI::ConfigItem> JsonConfig::from_config(std::istream& input) const {
  json values;
  try {
    values = json::parse(input);
  } catch (const json::exception& e) {
    throw CLI::FileError(std::string("the configuration is not JSON: ") + e.what());
  }
  if (!values.is_object()) throw CLI::FileError("the configuration must be one JSON object");
  std::vector<CLI::ConfigItem> flags;
  for (const auto& [key, value] : values.items()) {
    CLI::ConfigItem item;
    item.name = key;
    if (value.is_string()) {
      item.inputs = {value.get<std::string>()};
    } else if (value.is_number() || value.is_boolean()) {
      item.inputs = {value.dump()};
    } else {
      throw CLI::FileError("the configuration's \"" + key +
                           "\" must be a string, a number, true or false");
    }
    flags.push_back(std::move(item));
  }
  return flags;
}

}  // namespace lockstep::tools
