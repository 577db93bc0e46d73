// SPDX-License-Identifier: MIT
// One line of Criteo's text format, without the newline (a carriage return may remain). Its
// tab-separated fields are the label 0 or 1, 13 whole numbers and 26 hexadecimal 32-bit words. All
// fields except the label may be empty. Pure; thread-safe; about a microsecond per line.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::engine::data {

// Parses a line into 13 numbers, 26 ids below `buckets`, and the label. A number n becomes log(1 +
// n), or 0 if it is empty or negative. A word, or its absence, falls into a bucket drawn by (field,
// word). Throws Error(kCorrupt) that names `file`, the line (counted from 1), the field and its
// text.
void parse_criteo_line(std::string_view line, const std::string& file, std::uint64_t number,
                       std::size_t buckets, std::span<float> input, std::span<float> target);

}  // namespace lockstep::engine::data
