// SPDX-License-Identifier: MIT
// One line of Criteo's text format, without its end (a carriage return may be left): fields with a
// tab between them, the label 0 or 1, 13 whole numbers and 26 hexadecimal words of 32 bits, all of
// which but the label may be empty. Pure; any thread; about a microsecond a line.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::engine::data {

// A number n becomes log(1 + n), and 0 where it is empty or negative. A word, or its absence, falls
// into a bucket drawn by (field, word). Writes 13 numbers and 26 ids below `buckets`, and the
// label. Throws Error(kCorrupt) that names `file`, the line (counted from 1), the field and its
// text.
void parse_criteo_line(std::string_view line, const std::string& file, std::uint64_t number,
                       std::size_t buckets, std::span<float> input, std::span<float> target);

}  // namespace lockstep::engine::data
