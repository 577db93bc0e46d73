// SPDX-License-Identifier: MIT
// What a flag may be, checked while the command line is read: the text of --help says it, and so
// does the line about a value that is something else.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class Validator;
}  // namespace CLI

namespace lockstep::tools {

constexpr std::size_t kMostMemory = std::size_t(1) << 60;  // bytes that a flag can limit to

CLI::Validator whole_number(std::int64_t least, std::int64_t most);
CLI::Validator number_above(double bound, double most);
CLI::Validator number_from(double least, double most);
// "40000-40100", or one port.
CLI::Validator port_range();
// The first and the last port of such a text; nothing where it is none.
std::optional<std::pair<int, int>> ports_of(const std::string& text);
// Between two checkpoints: steps ("500"), or time ("90s", "10m", "2h").
struct Interval {
  std::int64_t steps = 0;
  double seconds = 0;
};
std::optional<Interval> interval_of(const std::string& text);  // nothing where it is neither
CLI::Validator steps_or_time();
// A size as collectives::parse_size reads it. `plain`: bytes of a number without a unit, 1 or a
// MiB. `word`: may stand instead; empty: none may.
CLI::Validator byte_size(std::size_t least, std::size_t most, std::size_t plain = 1,
                         const std::string& word = {});
// The name of a file, or of what else `what` says: not empty, which would be none.
CLI::Validator file_name(const std::string& what = "a file");
CLI::Validator one_of(std::vector<std::string> words);

}  // namespace lockstep::tools
