// SPDX-License-Identifier: MIT
#include "engine/base/quantity.h"

#include <gtest/gtest.h>

namespace lockstep::engine {
namespace quantity_test {

TEST(Quantity, OneIsSingular) {
  EXPECT_EQ(count_text(0, "bucket"), "0 buckets");
  EXPECT_EQ(count_text(1, "bucket"), "1 bucket");
  EXPECT_EQ(count_text(2, "bucket"), "2 buckets");
  EXPECT_EQ(count_text(1, "process", "processes"), "1 process");
  EXPECT_EQ(count_text(3, "process", "processes"), "3 processes");
}

TEST(Quantity, BytesHaveThreeDigitsOfTheLargestUnit) {
  const std::pair<double, const char*> cases[] = {{0, "0 bytes"},
                                                  {1, "1 byte"},
                                                  {1023, "1023 bytes"},
                                                  {1024, "1 KiB"},
                                                  {2678848, "2.55 MiB"},
                                                  {44 * 1024, "44 KiB"},
                                                  {960 << 20, "960 MiB"},
                                                  {0x1p20 - 1, "1 MiB"},
                                                  {1.5 * 0x1p30, "1.5 GiB"},
                                                  {99.96 * 1024, "100 KiB"},
                                                  {0x1p60, "1024 PiB"}};
  for (const auto& [bytes, text] : cases) EXPECT_EQ(bytes_text(bytes), text);
}

}  // namespace quantity_test
}  // namespace lockstep::engine
