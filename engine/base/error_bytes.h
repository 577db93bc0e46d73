// SPDX-License-Identifier: MIT
// Serializes errors for other processes: code, ranks, option and text (error.h). Thread-safe;
// `write_error` allocates nothing.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/error.h"

namespace lockstep::engine {

inline constexpr std::size_t kLeastErrorBytes = 64;

// Writes the error to the beginning of `to` (at least kLeastErrorBytes) and returns the bytes
// written. Omits what does not fit: ranks beyond a quarter of `to`, and the end of the text.
std::size_t write_error(const Error& error, std::span<std::byte> to) noexcept;

// Returns what `write_error` writes, as a string of at most 4 KiB.
std::string to_bytes(const Error& error);

// Returns the error that `write_error` wrote, or nothing if the bytes are invalid.
std::optional<Error> read_error(std::span<const std::byte> from);
std::optional<Error> read_error(std::string_view from);

}  // namespace lockstep::engine
