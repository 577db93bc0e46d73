// SPDX-License-Identifier: MIT
// Shortens what errors quote of their input. Pure; any thread.
#pragma once
#include <cstddef>
#include <exception>
#include <string>
#include <string_view>

namespace lockstep::engine {

constexpr std::size_t kMostQuoted = 200;  // bytes of input in a message

// Returns the text, or its beginning and its end with "..." between them where it is longer than
// `most` bytes. Does not cut characters of UTF-8 in two.
std::string brief(std::string_view text, std::size_t most = kMostQuoted);

constexpr std::size_t kMostOfALine = 600;  // bytes of a message

// Returns the text with each of its words, and what stands between ' and ', made brief, and then
// itself: for lines that quote paths and flags.
std::string brief_words(std::string_view text);

// Returns what a library's exception says, made brief and without a name in [ ] at its beginning.
std::string reason_of(const std::exception& error);

}  // namespace lockstep::engine
