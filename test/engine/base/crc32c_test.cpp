// SPDX-License-Identifier: MIT
#include "engine/base/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::test {
namespace crc32c_test {

using engine::crc32c;

// The expected values are those of RFC 3720, appendix B.4.
TEST(Crc32c, KnownAnswers) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) rising += char(i), falling += char(31 - i);
  EXPECT_EQ(crc32c(rising), 0x46dd794eu);
  EXPECT_EQ(crc32c(falling), 0x113fdb5cu);
}

}  // namespace crc32c_test
}  // namespace lockstep::test
