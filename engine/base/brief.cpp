// SPDX-License-Identifier: MIT
#include "engine/base/brief.h"

#include <algorithm>

namespace lockstep::engine {
namespace {

constexpr std::string_view kLeftOut = "...";

// Returns whether `c` is a UTF-8 continuation byte.
bool goes_on(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

}  // namespace

std::string brief(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  const std::size_t kept = most - std::min(most, kLeftOut.size());
  std::size_t front = kept - kept / 3, back = text.size() - kept / 3;
  // A character has at most three continuation bytes; text that is not UTF-8 is cut anywhere.
  for (int i = 0; i < 3 && front > 0 && goes_on(text[front]); ++i) --front;
  for (int i = 0; i < 3 && back < text.size() && goes_on(text[back]); ++i) ++back;
  return std::string(text.substr(0, front)).append(kLeftOut).append(text.substr(back));
}

std::string brief_words(std::string_view text) {
  std::string all;
  while (!text.empty()) {
    const std::size_t quoted = text[0] == '\'' ? text.find('\'', 1) : 0;
    const std::size_t end = std::min(text.find(' ', std::min(quoted, text.size())), text.size());
    all += brief(text.substr(0, end));
    text.remove_prefix(end);
    const std::size_t next = std::min(text.find_first_not_of(' '), text.size());
    all += text.substr(0, next);
    text.remove_prefix(next);
  }
  return brief(all, kMostOfALine);
}

std::string reason_of(const std::exception& error) {
  std::string_view text = error.what();
  const std::size_t end = text.find("] ");
  if (text.starts_with("[") && end != text.npos) text.remove_prefix(end + 2);
  return brief(text);
}

}  // namespace lockstep::engine
