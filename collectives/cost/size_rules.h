// SPDX-License-Identifier: MIT
// Rules that ask for an algorithm for a range of sizes instead of the planner's choice:
// "direct:..64k,hierarchical:64k..". Commas separate entries. An entry has an algorithm and a range
// of bytes, from its first number up to its second, exclusively. Either number may be missing.
// Without a range the entry is for all sizes. Blanks around an entry are ignored. Sizes with "auto"
// count as not named. `parse_size` defines how sizes are written, here and in all flags. All
// functions are pure.
#pragma once
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::collectives {

struct SizeRule {
  std::string algorithm;
  std::size_t from = 0, to = std::numeric_limits<std::size_t>::max();  // bytes: from <= size < to
  bool operator==(const SizeRule&) const = default;
};

// Parses rules. An empty text and "auto" mean no rules. Throws Error(kInvalid) if the text cannot
// be read or if two rules cover one size.
std::vector<SizeRule> parse_size_rules(std::string_view text);

// Removes blanks at the beginning and the end.
std::string_view without_blanks(std::string_view text);

// Parses bytes: "65536", "64k", "64KiB", "1.5M". k, m and g mean KiB, MiB and GiB (powers of 1024);
// kB, MB and GB mean powers of 1000. Case is ignored. A number without a unit counts `plain` bytes.
// Fractions of a byte are cut off. Throws Error(kInvalid), also for more than 2^60.
std::size_t parse_size(std::string_view text, std::size_t plain = 1);
std::string size_text(std::size_t bytes);  // "64 KiB"; "100 bytes" if no unit divides

}  // namespace lockstep::collectives
