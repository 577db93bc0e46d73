// SPDX-License-Identifier: MIT
#include "engine/base/error.h"

#include <gtest/gtest.h>

namespace lockstep::engine {
namespace error_test {

TEST(Error, CarriesCodeAndFormattedText) {
  try {
    fail(Code::kCorrupt, "{} has {} bytes", "file", 3);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kCorrupt);
    EXPECT_STREQ(error.what(), "file has 3 bytes");
    return;
  }
  FAIL() << "nothing was thrown";
}

TEST(Error, RequireThrowsOnlyWhereTheConditionFails) {
  EXPECT_NO_THROW(require(true, "never {}", 1));
  try {
    require(false, "batch {} is not above 0", -1);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalid);
    EXPECT_STREQ(error.what(), "batch -1 is not above 0");
  }
}

TEST(Error, EachCodeHasANameOfItsOwn) {
  std::vector<std::string_view> names;
  for (int code = 0; code <= int(Code::kAborted); ++code) {
    const std::string_view text = name(Code(code));
    EXPECT_NE(text, "unknown");
    for (std::string_view other : names) EXPECT_NE(text, other);
    names.push_back(text);
  }
}

TEST(InvariantDeathTest, StopsTheProgramWithTextAndPlace) {
  EXPECT_DEATH(invariant(false, "two and two are five"),
               "broken invariant: two and two are five.*error_test.cpp");
  invariant(true, "never");
}

}  // namespace error_test
}  // namespace lockstep::engine
