// SPDX-License-Identifier: MIT
// Damaged copies of a text, each a function of its number: truncated, with flipped bits, or with
// bytes replaced by extreme ones.
#pragma once
#include <cstdint>
#include <string>

namespace lockstep::test {

inline constexpr std::uint64_t kInputs = 10'000;  // per reader

std::string damaged(const std::string& whole, std::uint64_t number);

}  // namespace lockstep::test
