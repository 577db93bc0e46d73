// SPDX-License-Identifier: MIT
// Tests damaged CIFAR-10 files: they are refused as corrupt, or read exactly as they stand. Both
// need little memory.
#include <gtest/gtest.h>

#include <string>

#include "engine/base/error.h"
#include "engine/data/cifar_file.h"
#include "test/fuzz/damage.h"
#include "test/fuzz/memory_file.h"
#include "test/fuzz/most_memory.h"

namespace lockstep::test {
namespace cifar_fuzz_test {

using engine::Code;
using engine::Error;
using engine::data::CifarFile;
using engine::data::kCifarPixels;

constexpr std::size_t kLittle = std::size_t(1) << 20;

// Returns the file with exactly this content.
std::string file_of(const CifarFile& cifar) {
  std::string text;
  for (std::size_t i = 0; i < cifar.labels.size(); ++i) {
    text += char(cifar.labels[i]);
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::size_t p = 0; p < kCifarPixels / 3; ++p) {
        text += char(cifar.pixels[i * kCifarPixels + p * 3 + c]);
      }
    }
  }
  return text;
}

std::string images() {
  CifarFile cifar;
  for (std::size_t i = 0; i < 2; ++i) {
    cifar.labels.push_back(std::uint8_t(9 * i));
    for (std::size_t j = 0; j < kCifarPixels; ++j) cifar.pixels.push_back(std::uint8_t(j * j + i));
  }
  return file_of(cifar);
}

TEST(CifarFuzz, ADamagedFileIsRefusedOrReadAsItStands) {
  const std::string whole = images();
  MemoryFile file;
  std::uint64_t accepted = 0;
  for (std::uint64_t number = 0; number < kInputs; ++number) {
    const std::string text = damaged(whole, number);
    file.set(text);
    watch_memory();
    try {
      CifarFile cifar;
      engine::data::read_cifar_file(file.path(), cifar);
      EXPECT_EQ(file_of(cifar), text) << number;
      ++accepted;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kCorrupt) << number << ": " << error.what();
    }
    EXPECT_LT(most_memory(), kLittle) << number;
    if (HasFailure()) break;
  }
  EXPECT_GT(accepted, kInputs / 3);  // pixels may be anything
  EXPECT_LT(accepted, kInputs * 2 / 3);
}

}  // namespace cifar_fuzz_test
}  // namespace lockstep::test
