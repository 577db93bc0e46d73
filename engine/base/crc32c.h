// SPDX-License-Identifier: MIT
// CRC-32C (Castagnoli's polynomial 0x1edc6f41, reflected), as in RFC 3720, appendix B.4: the
// checksum of TensorFlow's records. Byte by byte from a table: for records of some hundred bytes.
// Any thread.
#pragma once
#include <cstdint>
#include <string_view>

namespace lockstep::engine {

std::uint32_t crc32c(std::string_view bytes);

}  // namespace lockstep::engine
