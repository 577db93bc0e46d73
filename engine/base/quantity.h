// SPDX-License-Identifier: MIT
// Quantities in messages for people. Pure functions; thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::engine {

// Returns "1 bucket" or "2 buckets". `many`: the plural, if it is not `one` with an s.
std::string count_text(std::uint64_t count, std::string_view one, std::string_view many = {});

// Returns "1 byte", "100 bytes", "2.55 MiB" or "960 MiB": three digits of the largest unit.
std::string bytes_text(double bytes);

}  // namespace lockstep::engine
