// SPDX-License-Identifier: MIT
// Which algorithm somebody wants for which sizes, instead of what the planner would choose:
// "direct:..64k,hierarchical:64k..". Entries are separated by commas: an algorithm, and a range of
// bytes from its first number on to before its second; either may be missing, and so may the range
// (then: all sizes). Blanks around an entry do not count; sizes for which "auto" is asked are as if
// they were not named. Sizes are written as `parse_size` reads them, here and in all flags. Pure.
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

// Empty text and "auto": no rules. Throws Error(kInvalid) for what cannot be read, and where two
// rules want one size.
std::vector<SizeRule> parse_size_rules(std::string_view text);

// Without those at its beginning and end.
std::string_view without_blanks(std::string_view text);

// Bytes: "65536", "64k", "64KiB", "1.5M"; k, m and g are KiB, MiB and GiB (1024 and so on); kB, MB
// and GB are of 1000; in capitals or not. A number without a unit counts `plain` bytes. What is cut
// off is less than a byte. Throws Error(kInvalid), also for more than 2^60.
std::size_t parse_size(std::string_view text, std::size_t plain = 1);
std::string size_text(std::size_t bytes);  // "64 KiB"; "100 bytes" where no unit divides

}  // namespace lockstep::collectives
