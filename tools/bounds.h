// SPDX-License-Identifier: MIT
// Allowed values of flags, checked while the command line is read. The text of --help and the
// message about a wrong value both state them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class Option;
class Validator;
}  // namespace CLI

namespace lockstep::tools {

constexpr std::size_t kMostMemory = std::size_t(1) << 60;  // bytes that a flag can limit to

CLI::Validator whole_number(std::int64_t least, std::int64_t most);
CLI::Validator number_above(double bound, double most);
CLI::Validator number_from(double least, double most);
// Accepts a range such as "40000-40100", or one port.
CLI::Validator port_range();
// Returns the first and the last port of such a text, or nothing for another text.
std::optional<std::pair<int, int>> ports_of(const std::string& text);
// Interval between two checkpoints: steps ("500"), or time ("90s", "10m", "2h").
struct Interval {
  std::int64_t steps = 0;
  double seconds = 0;
};
std::optional<Interval> interval_of(const std::string& text);  // nothing if it is neither
CLI::Validator steps_or_time();
// Accepts a size as collectives::parse_size reads it. `plain`: bytes of a number without a unit, 1
// or a MiB. `word`: an alternative to a size; empty: none.
CLI::Validator byte_size(std::size_t least, std::size_t most, std::size_t plain = 1,
                         const std::string& word = {});
// Accepts a name that is not empty. `what`: the named thing, such as "a folder".
CLI::Validator file_name(const std::string& what = "a file");
// Accepts a name that no other kind of picture has.
CLI::Validator svg_file();
// Words of other programs, and the words that mean the same here. An error suggests them.
using Synonyms = std::map<std::string, std::string>;
Synonyms dtype_synonyms();
CLI::Validator one_of(std::vector<std::string> words, const Synonyms& synonyms = {});
// Adds what shells complete to a validator that accepts more than that.
CLI::Validator with_completions(CLI::Validator validator, const std::vector<std::string>& values);
// Accepts every text; shells complete the values.
CLI::Validator suggested(const std::vector<std::string>& values);
// Lists what shells complete after a flag: values, names of files, or nothing.
struct Completions {
  std::vector<std::string> values;
  bool files = false;
};
Completions completions_of(CLI::Option& option);

}  // namespace lockstep::tools
