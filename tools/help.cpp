// SPDX-License-Identifier: MIT
#include "tools/help.h"

#include <fmt/core.h>

#include <algorithm>

namespace lockstep::tools {
namespace {

const std::string kDefault = "(default: ";

}  // namespace

// The parser's type is "INT:0 to 256": what bounds.h says stands behind the colon.
std::string Help::make_option_opts(const CLI::Option* option) const {
  const std::string type = option->get_type_name();
  if (type.empty()) return {};  // it takes no value
  return fmt::format(" {}{}", type.starts_with("TEXT") ? "TEXT" : "NUMBER",
                     option->get_required() ? " REQUIRED" : "");
}

std::string Help::make_option_desc(const CLI::Option* option) const {
  std::string text = option->get_description();
  const std::string type = option->get_type_name();
  if (type.empty()) return text;
  const std::string bounds = type.substr(std::min(type.find(':'), type.size() - 1) + 1);
  const std::string value = option->get_default_str();
  const std::size_t said = text.rfind(kDefault);
  if (said != std::string::npos) {
    if (!bounds.empty()) text.insert(said + 1, bounds + "; ");
    return text;
  }
  if (value.empty()) return bounds.empty() ? text : fmt::format("{} ({})", text, bounds);
  return fmt::format("{} ({}{}default: {})", text, bounds, bounds.empty() ? "" : "; ", value);
}

}  // namespace lockstep::tools
