// SPDX-License-Identifier: MIT
// Errors as bytes, for other processes: code, ranks, option and text (error.h). Any thread;
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

// Writes the error to the beginning of `to`, which holds at least kLeastErrorBytes. Returns the
// bytes written. What does not fit is left out: ranks beyond a quarter of `to`, and the end of the
// text.
std::size_t write_error(const Error& error, std::span<std::byte> to) noexcept;

// The same in a string of at most 4 KiB.
std::string to_bytes(const Error& error);

// The error that write_error wrote; nothing where these are no such bytes.
std::optional<Error> read_error(std::span<const std::byte> from);
std::optional<Error> read_error(std::string_view from);

}  // namespace lockstep::engine
