// SPDX-License-Identifier: MIT
#include "collectives/cost/size_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"

namespace lockstep::collectives {
namespace size_rules_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

TEST(SizeRules, AreRead) {
  EXPECT_THAT(parse_size_rules(""), IsEmpty());
  EXPECT_THAT(parse_size_rules("auto"), IsEmpty());
  EXPECT_THAT(parse_size_rules("ring"), ElementsAre(SizeRule{"ring", 0, kAll}));
  EXPECT_THAT(parse_size_rules("direct:..64k,ring:64KiB..1M,tree:2g.."),
              ElementsAre(SizeRule{"direct", 0, 65536}, SizeRule{"ring", 65536, 1 << 20},
                          SizeRule{"tree", std::size_t(2) << 30, kAll}));
  EXPECT_THAT(parse_size_rules("ring:100..200b"), ElementsAre(SizeRule{"ring", 100, 200}));
  EXPECT_THAT(parse_size_rules(" direct:..4k, ring:4k.. "),
              ElementsAre(SizeRule{"direct", 0, 4096}, SizeRule{"ring", 4096, kAll}));
  EXPECT_THAT(parse_size_rules("auto:..4k,ring:4k.."), ElementsAre(SizeRule{"ring", 4096, kAll}));
  EXPECT_THAT(parse_size_rules("auto:.."), IsEmpty());
}

TEST(SizeRules, WhatCannotBeReadIsRefusedWithAReason) {
  const std::pair<const char*, const char*> cases[] = {
      {":..64k", "names no algorithm"},
      {"ring,", "names no algorithm"},
      {"ring:64k", "has no range"},
      {"ring:64k..64k", "holds no size"},
      {"ring:64q..", "'64q' is no size"},
      {"ring:-1..", "'-1' is no size"},
      {"ring:k..", "'k' is no size"},
      {"ring:99999999999999999999..", "too many"},
      {"ring:2000000000g..", "too many"},
      {"ring,direct", "ring and direct both want 0 bytes"},
      {"ring:..64k,direct:32k..", "ring and direct both want 32 KiB"},
  };
  for (const auto& [text, reason] : cases) {
    try {
      parse_size_rules(text);
      ADD_FAILURE() << text;
    } catch (const engine::Error& error) {
      EXPECT_EQ(error.code(), engine::Code::kInvalid);
      EXPECT_THAT(error.what(), HasSubstr(reason)) << text;
    }
  }
}

TEST(SizeRules, SizesAreReadInAllNotationsOfThem) {
  for (const char* text : {"65536", "65536b", "65536B", "64k", "64K", "64KiB", "64kib", "65.536kB"})
    EXPECT_EQ(parse_size(text), 65536u) << text;
  for (const char* text : {"4m", "4M", "4MiB", "4096k", "0.00390625g"})
    EXPECT_EQ(parse_size(text), std::size_t(4) << 20) << text;
  EXPECT_EQ(parse_size("1.5MiB"), std::size_t(3) << 19);
  EXPECT_EQ(parse_size("2MB"), 2'000'000u);
  EXPECT_EQ(parse_size("0"), 0u);
  EXPECT_EQ(parse_size("1152921504606846975"), (std::size_t(1) << 60) - 1);
  // The flag defines the unit of a number without a unit.
  EXPECT_EQ(parse_size("4", 1 << 20), std::size_t(4) << 20);
  EXPECT_EQ(parse_size("0.5", 1 << 20), std::size_t(1) << 19);
  EXPECT_EQ(parse_size("64k", 1 << 20), 65536u);
  for (const char* text : {"", "k", "4q", "4Ki", "4 k", " 4k", "-1", "+1", "1e3", "1e3k", ".5k",
                           "0x10", "inf", "nan", "1.5", "1.5b", "4k4", "2000000000g"})
    EXPECT_THROW(parse_size(text), engine::Error) << text;
}

TEST(SizeRules, SizesAreWritten) {
  EXPECT_EQ(size_text(100), "100 bytes");
  EXPECT_EQ(size_text(1024), "1 KiB");
  EXPECT_EQ(size_text(1536), "1536 bytes");
  EXPECT_EQ(size_text(std::size_t(256) << 20), "256 MiB");
  EXPECT_EQ(size_text(std::size_t(3) << 30), "3 GiB");
}

}  // namespace size_rules_test
}  // namespace lockstep::collectives
