// SPDX-License-Identifier: MIT
#include "tools/help.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace lockstep::tools {
namespace {

const std::string kExamplesTitle = "Examples:\n";
const std::string kDefault = "(default: ";
constexpr std::size_t kWidth = 66;  // columns of a description

// Returns the text with line breaks instead of some blanks.
std::string wrapped(const std::string& text) {
  std::string lines;
  std::size_t width = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (width > 0 && width + 1 + word.size() > kWidth) {
      lines += '\n';
      width = 0;
    }
    lines += (width > 0 ? " " : "") + word;
    width += (width > 0 ? 1 : 0) + word.size();
    at = end + 1;
  }
  return lines;
}

// Returns whether the text has each of the words that the bounds list: "auto, on or off".
bool lists(const std::string& text, const std::string& bounds) {
  const std::string list = CLI::detail::find_and_replace(bounds, " or ", ", ");
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.find(", ", at), list.size());
    if (text.find(list.substr(at, end - at)) == std::string::npos) return false;
    at = end + 2;
  }
  return true;
}

}  // namespace

std::vector<std::string> spellings(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

// The parser's type is "INT:0 to 256", with the text of bounds.h after the colon.
ValueKind value_kind(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.empty()               ? ValueKind::kNone
         : type.starts_with("TEXT") ? ValueKind::kText
                                    : ValueKind::kNumber;
}

std::string full_description(const CLI::Option& option) {
  std::string text = option.get_description();
  const std::string type = option.get_type_name();
  if (type.empty()) return text;
  std::string bounds = type.substr(std::min(type.find(':'), type.size() - 1) + 1);
  if (lists(text, bounds)) bounds.clear();
  const std::string value = option.get_default_str();
  const std::size_t said = text.rfind(kDefault);
  if (said != std::string::npos) {
    if (!bounds.empty()) text.insert(said + 1, bounds + "; ");
    return text;
  }
  if (value.empty()) return bounds.empty() ? text : fmt::format("{} ({})", text, bounds);
  return fmt::format("{} ({}{}default: {})", text, bounds, bounds.empty() ? "" : "; ", value);
}

std::string summary(const CLI::Option& option) {
  std::string text = option.get_description();
  for (const char* mark : {"; ", ": ", " (", ", e.g."}) text = text.substr(0, text.find(mark));
  return text;
}

// Returns the names, such as "-b, --min, --minbytes".
std::string Help::make_option_name(const CLI::Option* option, bool positional) const {
  if (brief_ && !option->get_lnames().empty()) {
    const std::vector<std::string>& letters = option->get_snames();
    return (letters.empty() ? "" : "-" + letters[0] + ", ") + "--" + option->get_lnames()[0];
  }
  return CLI::detail::find_and_replace(CLI::Formatter::make_option_name(option, positional), ",",
                                       ", ");
}

// Puts one empty line before each group; the library has two.
std::string Help::make_usage(const CLI::App* app, std::string name) const {
  return CLI::Formatter::make_usage(app, std::move(name)) + "\n";
}

std::string Help::make_group(std::string group, bool positional,
                             std::vector<const CLI::Option*> options) const {
  return CLI::Formatter::make_group(std::move(group), positional, std::move(options)).substr(1);
}

std::string Help::make_option_opts(const CLI::Option* option) const {
  const ValueKind kind = value_kind(*option);
  if (kind == ValueKind::kNone) return {};
  return fmt::format(" {}{}", kind == ValueKind::kText ? "TEXT" : "NUMBER",
                     option->get_required() ? " REQUIRED" : "");
}

std::string Help::make_option_desc(const CLI::Option* option) const {
  const std::string text = full_description(*option);
  if (!brief_) return wrapped(text);
  if (text.size() <= kWidth) return text;
  const std::string brief = summary(*option), type = option->get_type_name();
  const std::size_t value = text.rfind("default: "), values = type.find(':');
  if (value == std::string::npos) return brief;
  const std::string with_default = fmt::format("{} ({}", brief, text.substr(value));
  if (values != std::string::npos) {
    const std::string with_values =
        fmt::format("{} ({}; {}", brief, type.substr(values + 1), text.substr(value));
    if (with_values.size() <= kWidth) return with_values;
  }
  return with_default.size() <= kWidth ? with_default : brief;
}

std::string Help::make_footer(const CLI::App* app) const {
  const std::string footer = CLI::Formatter::make_footer(app);
  const std::size_t examples = footer.find(kExamplesTitle);
  return brief_ && examples != std::string::npos ? footer.substr(examples) : footer;
}

void end_help(CLI::App& app, const std::string& examples, const std::string& fields) {
  app.option_defaults()->group("General");
  app.set_help_flag("-h,--help", "print this help; -h is short, a line for each flag");
  app.footer((fields.empty() ? "" : fields + "\n") + kExamplesTitle + examples);
}

}  // namespace lockstep::tools
