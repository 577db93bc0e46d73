// SPDX-License-Identifier: MIT
// CRC-32C (Castagnoli polynomial 0x1edc6f41, reflected; RFC 3720, appendix B.4): the checksum of
// TensorFlow's records. A byte-wise table lookup, for records of some hundred bytes. Thread-safe.
#pragma once
#include <cstdint>
#include <string_view>

namespace lockstep::engine {

std::uint32_t crc32c(std::string_view bytes);

}  // namespace lockstep::engine
