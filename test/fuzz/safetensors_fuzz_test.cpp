// SPDX-License-Identifier: MIT
// Tests damaged safetensors files. The header is refused as corrupt, or equals an independent parse
// of its JSON, without holes. A checkpoint's shard with any changed bit is never accepted.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/safetensors.h"
#include "test/engine/checkpoint/memory_storage.h"
#include "test/engine/checkpoint/scenario.h"
#include "test/fuzz/damage.h"
#include "test/fuzz/most_memory.h"

namespace lockstep::test {
namespace safetensors_fuzz_test {

using engine::Checkpoints;
using engine::Code;
using engine::Error;
using engine::Safetensors;

constexpr std::size_t kLittle = std::size_t(1) << 20;

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

// Returns the parsed content in the format of the header.
nlohmann::json header_of(const Safetensors& read, std::uint64_t data_begin) {
  nlohmann::json header = nlohmann::json::object();
  if (!read.metadata.empty()) header["__metadata__"] = read.metadata;
  for (const auto& [name, entry] : read.tensors) {
    nlohmann::json shape = nlohmann::json::array();
    for (std::size_t i = 0; i < entry.shape.rank(); ++i) shape.push_back(entry.shape[i]);
    const char* const names[] = {"F32", "F64", "I32", "I64", "F16", "BF16"};
    header[name] = {{"dtype", names[int(entry.dtype)]},
                    {"shape", shape},
                    {"data_offsets", {entry.begin - data_begin, entry.end - data_begin}}};
  }
  return header;
}

TEST(SafetensorsFuzz, ADamagedHeaderIsRefusedOrReadAsItStands) {
  MemoryStorage storage;
  Arrays arrays = some_arrays(5);
  std::vector<engine::TensorSource> sources;
  for (const NamedArray& array : arrays) {
    sources.push_back({array.name, array.dtype, array.shape, array.bytes.data()});
  }
  engine::write_safetensors(*storage.create("f"), sources, {{"key", "5x5"}});
  const std::string whole = text_of(storage.contents("f"));
  std::uint64_t accepted = 0;
  for (std::uint64_t number = 0; number < kInputs && !HasFailure(); ++number) {
    const std::string text = damaged(whole, number);
    storage.contents("f") = bytes_of(text);
    watch_memory();
    try {
      const Safetensors read = engine::read_safetensors(storage, "f");
      std::uint64_t length = 0, sum = 0;
      std::memcpy(&length, text.data(), sizeof length);
      const nlohmann::json header = nlohmann::json::parse(text.substr(8, length));
      nlohmann::json expected = header;
      if (expected.contains("__metadata__") && expected["__metadata__"].empty()) {
        expected.erase("__metadata__");
      }
      EXPECT_EQ(header_of(read, 8 + length), expected) << number;
      for (const auto& [name, entry] : read.tensors) sum += entry.end - entry.begin;
      EXPECT_EQ(sum, text.size() - 8 - length) << number;
      ++accepted;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kCorrupt) << number << ": " << error.what();
    }
    EXPECT_LT(most_memory(), kLittle) << number;
  }
  EXPECT_GT(accepted, 100u);  // the manifest's checksums cover names and data
  EXPECT_LT(accepted, kInputs * 2 / 3);
}

// Damage never makes files longer, so this tests bytes after the last tensor.
TEST(SafetensorsFuzz, WhatIsLongerThanItsTensorsIsRefused) {
  MemoryStorage storage;
  for (const Arrays& arrays : {some_arrays(5), tiny_arrays(5), Arrays()}) {
    std::vector<engine::TensorSource> sources;
    for (const NamedArray& array : arrays) {
      sources.push_back({array.name, array.dtype, array.shape, array.bytes.data()});
    }
    engine::write_safetensors(*storage.create("f"), sources, {});
    const std::string whole = text_of(storage.contents("f"));
    for (std::size_t more : {0, 1, 3, 4, 8, 4096}) {
      for (const std::string& filling : {std::string(more, '\0'), std::string(more, 'x')}) {
        storage.contents("f") = bytes_of(whole + filling);
        try {
          engine::read_safetensors(storage, "f");
          EXPECT_EQ(more, 0u) << "accepted, with " << arrays.size() << " tensors";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Code::kCorrupt);
          EXPECT_NE(more, 0u) << error.what();
        }
      }
    }
  }
}

TEST(SafetensorsFuzz, ADamagedShardIsNeverPartOfACheckpoint) {
  MemoryStorage storage;
  LogLines lines;
  std::mt19937_64 random(3);
  Checkpoints checkpoints(storage, "runs", 2, lines.log());
  save(checkpoints, 1, tiny_arrays(2), 1, random);
  const std::string path = "runs/step-0000000001/" + engine::shard_name(0, 1);
  const std::string whole = text_of(storage.contents(path));
  for (std::uint64_t number = 0; number < kInputs && !HasFailure(); ++number) {
    const std::string text = damaged(whole, number);
    storage.contents(path) = bytes_of(text);
    try {
      checkpoints.verify(1);
      EXPECT_EQ(text, whole) << number;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kCorrupt) << number << ": " << error.what();
      EXPECT_NE(text, whole) << number;
    }
  }
}

}  // namespace safetensors_fuzz_test
}  // namespace lockstep::test
