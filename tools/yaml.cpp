// SPDX-License-Identifier: MIT
#include "tools/yaml.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>

namespace lockstep::tools {
namespace {

using nlohmann::ordered_json;

// Returns whether every reader of YAML takes the text for a string: a word that begins with a
// letter and that is no word of YAML.
bool is_plain(std::string_view text) {
  static constexpr std::array<std::string_view, 9> kWords{"true", "false", "null", "yes", "no",
                                                          "on",   "off",   "y",    "n"};
  if (text.empty() || std::isalpha(static_cast<unsigned char>(text[0])) == 0) return false;
  std::string lower;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 &&
        std::string_view("_./-").find(c) == std::string_view::npos)
      return false;
    lower += char(std::tolower(static_cast<unsigned char>(c)));
  }
  return std::ranges::find(kWords, lower) == kWords.end();
}

std::string scalar(const ordered_json& value) {
  const bool plain = value.is_string() && is_plain(value.get_ref<const std::string&>());
  return plain ? value.get<std::string>() : value.dump();
}

bool is_block(const ordered_json& value) {
  return value.is_structured() && !value.empty();
}

void write(const ordered_json& value, std::size_t indent, std::string& text) {
  const std::string blanks(indent, ' ');
  if (value.is_array()) {
    for (const ordered_json& element : value) {
      if (!is_block(element)) {
        text += blanks + "- " + scalar(element) + "\n";
        continue;
      }
      const std::size_t at = text.size();
      write(element, indent + 2, text);
      text[at + indent] = '-';  // in the indentation of its first line
    }
    return;
  }
  for (const auto& [key, member] : value.items()) {
    text += blanks + scalar(key) + ":";
    if (is_block(member)) {
      text += "\n";
      write(member, indent + 2, text);
    } else {
      text += " " + scalar(member) + "\n";
    }
  }
}

}  // namespace

std::string to_yaml(const ordered_json& value) {
  std::string text;
  if (is_block(value)) {
    write(value, 0, text);
  } else {
    text = scalar(value) + "\n";
  }
  return text;
}

}  // namespace lockstep::tools
