// SPDX-License-Identifier: MIT
// Tests damaged manifests: the checksum refuses each of them. Forged manifests, whose checksum is
// right again, are refused with a reason or read like an independent parse.
#include <gtest/gtest.h>
#include <zlib.h>

#include <nlohmann/json.hpp>
#include <string>

#include "engine/base/error.h"
#include "engine/checkpoint/manifest.h"
#include "test/fuzz/damage.h"
#include "test/fuzz/most_memory.h"

namespace lockstep::test {
namespace manifest_fuzz_test {

using engine::Code;
using engine::DType;
using engine::Error;
using engine::Manifest;
using Json = nlohmann::ordered_json;

constexpr std::size_t kLittle = std::size_t(1) << 20;
constexpr std::size_t kFirstLine = 22;

std::string whole() {
  Manifest manifest;
  manifest.state.step = 7;
  manifest.state.steps = 90;
  manifest.state.model = "mlp";
  manifest.state.notes = {{"k", "v"}};
  manifest.shards = {{100, 0x12345678}, {200, 0x9abcdef0}};
  manifest.arrays = {
      {"a", DType::kFloat32, {2, 3}, {{0, "a@0", {0, 4}}, {1, "a@4", {4, 6}}}},
      {"b", DType::kInt64, {}, {{1, "b", {0, 1}}}},
  };
  return engine::manifest_text(manifest);
}

std::string sealed(const std::string& body) {
  const auto crc = ::crc32_z(0, reinterpret_cast<const Bytef*>(body.data()), body.size());
  return fmt::format("{{\"crc32\": \"{:08x}\",\n{}", crc, body);
}

TEST(ManifestFuzz, EveryDamagedManifestIsRefused) {
  const std::string right = whole();
  for (std::uint64_t number = 0; number < kInputs && !HasFailure(); ++number) {
    const std::string text = damaged(right, number);
    watch_memory();
    try {
      engine::parse_manifest(text, "M");
      EXPECT_EQ(text, right) << number;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kCorrupt) << number << ": " << error.what();
      EXPECT_NE(text, right) << number;
    }
    EXPECT_LT(most_memory(), kLittle) << number;
  }
}

TEST(ManifestFuzz, AForgedManifestIsRefusedOrReadAsItStands) {
  const std::string body = whole().substr(kFirstLine);
  std::uint64_t accepted = 0;
  for (std::uint64_t number = 0; number < kInputs && !HasFailure(); ++number) {
    const std::string text = sealed(damaged(body, number));
    watch_memory();
    try {
      const Manifest read = engine::parse_manifest(text, "M");
      const Json said = Json::parse(text);
      const Json again = Json::parse(engine::manifest_text(read));
      for (const char* field : {"format", "version", "state", "shards", "arrays"}) {
        // The reader drops unknown fields and must preserve the known ones.
        const Json flat = again.at(field).flatten();
        for (const auto& [key, value] : flat.items()) {
          const Json::json_pointer at(key);
          const bool empty = value.is_null();  // flattening turns empty containers into null
          EXPECT_TRUE(empty || said.at(field).contains(at)) << number << key;
          if (!empty && said.at(field).contains(at)) {
            EXPECT_EQ(said.at(field).at(at), value) << number << key;
          }
        }
      }
      ++accepted;
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == Code::kCorrupt || error.code() == Code::kInvalid)
          << number << ": " << error.what();
    }
    EXPECT_LT(most_memory(), kLittle) << number;
  }
  EXPECT_GT(accepted, 100u);  // in names and white space
  EXPECT_LT(accepted, kInputs * 2 / 3);
}

}  // namespace manifest_fuzz_test
}  // namespace lockstep::test
