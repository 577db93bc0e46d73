// SPDX-License-Identifier: MIT
#include "engine/data/criteo_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/random.h"
#include "engine/data/clicks.h"

namespace lockstep::engine::data {
namespace {

constexpr std::size_t kFieldsOfALine = 1 + kClickColumns;

// Returns the beginning of any text, made printable.
std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 24;
  std::string safe(text.substr(0, kMost));
  std::ranges::replace_if(
      safe, [](unsigned char c) { return std::isprint(c) == 0; }, '?');
  return text.size() > kMost ? safe + "..." : safe;
}

// Reads all of `text` as a number; returns false if it is not one.
template <class T>
bool read_number(std::string_view text, int base, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc() && end == text.data() + text.size();
}

// Explains a line with a wrong number of fields, for the end of a message.
std::string what_it_may_be(std::string_view line, std::size_t fields) {
  if (fields == kClickColumns) return "; it seems to lack its label, as Criteo's test.txt does";
  for (const auto& [separator, name] :
       {std::pair{',', "commas"}, {';', "semicolons"}, {' ', "spaces"}}) {
    const std::size_t parts = std::size_t(std::ranges::count(line, separator)) + 1;
    if (fields == 1 && (parts == kFieldsOfALine || parts == kClickColumns))
      return fmt::format("; {} stand between its {} fields: write tabs instead", name, parts);
  }
  return "";
}

std::uint64_t bucket_of(std::size_t field, std::uint64_t word, std::size_t buckets) {
  constexpr std::uint64_t kKey = 0x437269746f0001;
  const auto bits = random_bits(kKey, word, field);
  return (std::uint64_t(bits[0]) << 32 | bits[1]) % buckets;
}

}  // namespace

void parse_criteo_line(std::string_view line, const std::string& file, std::uint64_t number,
                       std::size_t buckets, std::span<float> input, std::span<float> target) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const std::size_t fields = std::size_t(std::ranges::count(line, '\t')) + 1;
  if (fields != kFieldsOfALine) {
    fail(Code::kCorrupt,
         "data: {}: line {}: {} fields with tabs between them, should be {}: a label, {} numbers, "
         "{} words{}",
         file, number, fields, kFieldsOfALine, kClickNumbers, kClickFields,
         what_it_may_be(line, fields));
  }
  for (std::size_t i = 0; i < kFieldsOfALine; ++i) {
    const std::size_t end = std::min(line.find('\t'), line.size());
    const std::string_view text = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
    const auto wrong = [&](const char* right) {
      fail(Code::kCorrupt, "data: {}: line {}: field {}: '{}', should be {}", file, number, i + 1,
           shown(text), right);
    };
    if (i == 0) {
      const bool heading =
          number == 1 && !text.empty() && std::isalpha(static_cast<unsigned char>(text[0]));
      if (heading) wrong("the label 0 or 1: remove the line where it is a heading");
      if (text != "0" && text != "1") wrong("the label 0 or 1");
      target[0] = text == "1" ? 1 : 0;
    } else if (i <= kClickNumbers) {
      std::int64_t value = 0;
      if (!text.empty() && !read_number(text, 10, value)) wrong("a whole number of 64 bits");
      input[i - 1] = float(std::log1p(double(std::max<std::int64_t>(value, 0))));
    } else {
      std::uint32_t value = 0;
      if (!text.empty() && !read_number(text, 16, value)) wrong("a hexadecimal word of 32 bits");
      const std::uint64_t word = text.empty() ? std::uint64_t(1) << 32 : value;
      input[i - 1] = float(bucket_of(i - 1 - kClickNumbers, word, buckets));
    }
  }
}

}  // namespace lockstep::engine::data
