// SPDX-License-Identifier: MIT
#include "engine/base/error.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/base/error_bytes.h"

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

TEST(Error, CarriesRanksInOrderAndEachOnce) {
  const Error error(Code::kPeerLost, "some died", {7, 2, 7}, true);
  EXPECT_EQ(error.ranks(), (std::vector<int>{2, 7}));
  const Error other = error.with("others say so");
  EXPECT_EQ(other.code(), Code::kPeerLost);
  EXPECT_STREQ(other.what(), "others say so");
  EXPECT_EQ(other.ranks(), error.ranks());
  EXPECT_TRUE(other.located());
  EXPECT_EQ(other.option(), Option::kNone);
  EXPECT_EQ(other.about(Option::kKeep).with("x").option(), Option::kKeep);
  EXPECT_TRUE(Error(Code::kIo, "disk").ranks().empty());
}

TEST(Error, OfAnotherExceptionTheTextStays) {
  EXPECT_EQ(as_error(Error(Code::kIo, "disk", {3})).ranks(), std::vector<int>{3});
  const Error error = as_error(std::runtime_error("odd"));
  EXPECT_EQ(error.code(), Code::kAborted);
  EXPECT_STREQ(error.what(), "odd");
}

TEST(Option, EachHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int option = 0; option <= int(kLastOption); ++option)
    EXPECT_TRUE(names.insert(name(Option(option))).second) << option;
}

TEST(ErrorBytes, ComeBackAsTheSameError) {
  std::array<std::byte, 256> bytes;
  for (const Error& error :
       {Error(Code::kPeerLost, "rank 3 died", {3, 1000000}, true),
        Error(Code::kInvalid, "").about(Option::kTables), Error(Code::kAborted, "x", {0})}) {
    const std::size_t count = write_error(error, bytes);
    const auto back = read_error(std::span(bytes).first(count));
    ASSERT_TRUE(back);
    EXPECT_EQ(back->code(), error.code());
    EXPECT_STREQ(back->what(), error.what());
    EXPECT_EQ(back->ranks(), error.ranks());
    EXPECT_EQ(back->located(), error.located());
    EXPECT_EQ(back->option(), error.option());
  }
}

TEST(ErrorBytes, WhatDoesNotFitIsLeftOut) {
  std::array<std::byte, 64> bytes;
  std::vector<int> many(100);
  std::iota(many.begin(), many.end(), 0);
  const std::size_t count = write_error(Error(Code::kIo, std::string(90, 'x'), many), bytes);
  EXPECT_EQ(count, bytes.size());
  const auto back = read_error(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->ranks(), (std::vector<int>{0, 1}));
  EXPECT_EQ(back->what(), std::string(48, 'x'));
}

// An invalid code, flag, option, rank count, or rank makes the bytes unreadable.
TEST(ErrorBytes, OtherBytesAreNoError) {
  std::array<std::byte, 64> bytes{};
  const std::size_t count = write_error(Error(Code::kIo, "", {5}), bytes);
  ASSERT_EQ(count, 12u);
  EXPECT_FALSE(read_error(std::string_view()));
  EXPECT_FALSE(read_error(std::span(bytes).first(3)));
  EXPECT_FALSE(read_error(std::span(bytes).first(11)));  // cuts the rank in half
  for (const auto& [at, value] : {std::pair(0, 200), std::pair(1, 2), std::pair(2, 99),
                                  std::pair(5, 255), std::pair(11, 255)}) {
    auto wrong = bytes;
    wrong[std::size_t(at)] = std::byte(value);
    EXPECT_FALSE(read_error(std::span(wrong).first(count))) << at;
  }
}

TEST(InvariantDeathTest, StopsTheProgramWithTextAndPlace) {
  EXPECT_DEATH(invariant(false, "two and two are five"),
               "broken invariant: two and two are five.*error_test.cpp");
  invariant(true, "never");
}

}  // namespace error_test
}  // namespace lockstep::engine
