// SPDX-License-Identifier: MIT
#include "engine/base/crc32c.h"

#include <array>

namespace lockstep::engine {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // reflected

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? kPolynomial : 0);
    table[byte] = rest;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kTable = make_table();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t rest = 0xffffffff;
  for (const char byte : bytes) rest = (rest >> 8) ^ kTable[(rest ^ std::uint8_t(byte)) & 0xff];
  return ~rest;
}

}  // namespace lockstep::engine
