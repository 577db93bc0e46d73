// SPDX-License-Identifier: MIT
// Shortens input that errors quote. Pure; thread-safe.
#pragma once
#include <cstddef>
#include <exception>
#include <string>
#include <string_view>

namespace lockstep::engine {

constexpr std::size_t kMostQuoted = 200;  // bytes of input in a message

// Returns the text; if it is longer than `most` bytes, its beginning and end with "..." between
// them. Never splits a UTF-8 character.
std::string brief(std::string_view text, std::size_t most = kMostQuoted);

constexpr std::size_t kMostOfALine = 600;  // bytes of a message

// Returns the text with each word and each part in single quotes shortened to kMostQuoted, and all
// of it shortened to kMostOfALine. For lines that quote paths and flags.
std::string brief_words(std::string_view text);

// Returns a library exception's message, shortened and without a leading "[name] ".
std::string reason_of(const std::exception& error);

}  // namespace lockstep::engine
