// SPDX-License-Identifier: MIT
#include "engine/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/base/error.h"

namespace lockstep::test {
namespace manifest_test {

using engine::DType;
using engine::Error;
using engine::Manifest;
using engine::parse_manifest;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using Json = nlohmann::ordered_json;

Manifest example() {
  Manifest manifest;
  manifest.state.step = 7;
  manifest.state.notes = {{"k", "v"}};
  manifest.shards = {{100, 0x12345678}, {200, 0x9abcdef0}};
  manifest.arrays = {
      {"a", DType::kFloat32, {2, 3}, {{0, "a@0", {0, 4}}, {1, "a@4", {4, 6}}}},
      {"b", DType::kInt64, {}, {{1, "b", {0, 1}}}},
  };
  return manifest;
}

// Adds the right checksum to a changed manifest: a forger can do this, damage cannot.
std::string sealed(const Json& json) {
  std::string body = json.dump(1).substr(2) + "\n";
  const auto crc = ::crc32_z(0, reinterpret_cast<const Bytef*>(body.data()), body.size());
  return fmt::format("{{\"crc32\": \"{:08x}\",\n{}", crc, body);
}

std::string error_of(const std::string& text) {
  try {
    parse_manifest(text, "M");
  } catch (const Error& error) {
    return std::string(engine::name(error.code())) + ": " + error.what();
  }
  return "none";
}

std::string error_of_change(const std::function<void(Json&)>& change) {
  Json json = Json::parse(manifest_text(example()));
  json.erase("crc32");
  change(json);
  return error_of(sealed(json));
}

TEST(ManifestTest, ReadsWhatItWrites) {
  const Manifest written = example();
  const Manifest read = parse_manifest(manifest_text(written), "M");
  EXPECT_EQ(read.state.step, 7);
  EXPECT_EQ(read.state.notes, written.state.notes);
  ASSERT_EQ(read.shards.size(), 2u);
  EXPECT_EQ(read.shards[1].bytes, 200u);
  EXPECT_EQ(read.shards[1].crc, 0x9abcdef0u);
  ASSERT_EQ(read.arrays.size(), 2u);
  EXPECT_EQ(read.arrays[0].shape, written.arrays[0].shape);
  ASSERT_EQ(read.arrays[0].parts.size(), 2u);
  EXPECT_EQ(read.arrays[0].parts[1].shard, 1);
  EXPECT_EQ(read.arrays[0].parts[1].key, "a@4");
  EXPECT_EQ(read.arrays[0].parts[1].range, (engine::Range{4, 6}));
  EXPECT_EQ(read.arrays[1].dtype, DType::kInt64);
  EXPECT_EQ(manifest_text(read), manifest_text(written));
  EXPECT_EQ(error_of_change([](Json&) {}), "none");
}

TEST(ManifestTest, EveryFlippedBitIsNoticed) {
  std::string text = manifest_text(example());
  for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
    text[bit / 8] = char(text[bit / 8] ^ 1 << bit % 8);
    ASSERT_THAT(error_of(text), StartsWith("corrupt: M: ")) << "byte " << bit / 8;
    text[bit / 8] = char(text[bit / 8] ^ 1 << bit % 8);
  }
}

TEST(ManifestTest, EveryTruncationIsNoticed) {
  const std::string text = manifest_text(example());
  for (std::size_t size = 0; size < text.size(); ++size) {
    ASSERT_THAT(error_of(text.substr(0, size)), StartsWith("corrupt: M: ")) << size;
  }
  EXPECT_THAT(error_of(text + " "), StartsWith("corrupt: M: "));
}

TEST(ManifestTest, ANewerVersionIsRefusedByItsNumber) {
  EXPECT_THAT(error_of_change([](Json& json) { json["version"] = 2; }),
              AllOf(StartsWith("invalid: M: "), HasSubstr("version 2 is newer"),
                    HasSubstr("reads up to 1")));
  EXPECT_THAT(error_of_change([](Json& json) { json["version"] = 0; }), StartsWith("corrupt"));
  EXPECT_THAT(error_of_change([](Json& json) { json["format"] = "x"; }), StartsWith("corrupt"));
}

TEST(ManifestTest, PiecesMustCoverTheirArrayExactlyOnce) {
  const auto with_pieces = [](std::vector<std::pair<int, int>> ranges) {
    return error_of_change([&](Json& json) {
      Json& pieces = json["arrays"][0]["pieces"];
      const Json piece = pieces[0];
      pieces = Json::array();
      for (const auto& [begin, end] : ranges) {
        pieces.push_back(piece);
        pieces.back()["begin"] = begin;
        pieces.back()["end"] = end;
      }
    });
  };
  EXPECT_EQ(with_pieces({{4, 6}, {0, 4}}), "none");
  EXPECT_THAT(with_pieces({{0, 4}, {5, 6}}),
              AllOf(StartsWith("corrupt"), HasSubstr("'a'"), HasSubstr("4 to 5 are in no shard")));
  EXPECT_THAT(with_pieces({{0, 4}, {3, 6}}), HasSubstr("3 to 4 are there twice"));
  EXPECT_THAT(with_pieces({{0, 4}}), HasSubstr("4 to 6 are in no shard"));
  EXPECT_THAT(with_pieces({{0, 7}}), HasSubstr("not within its 6"));
  EXPECT_THAT(with_pieces({{4, 2}, {0, 6}}), HasSubstr("not within its 6"));
  EXPECT_THAT(with_pieces({}), HasSubstr("in no shard"));
}

TEST(ManifestTest, FileNamesNeverBecomePaths) {
  for (const char* name : {"../../etc/passwd", "/dev/zero", "", "shard-00002-of-00002.safetensors",
                           "shard-0000-of-00002.safetensors", "shard-00000-of-00003.safetensors",
                           "shard--0001-of-00002.safetensors"}) {
    EXPECT_THAT(error_of_change([&](Json& json) { json["arrays"][0]["pieces"][0]["file"] = name; }),
                AllOf(StartsWith("corrupt"), HasSubstr("arrays[0].pieces[0].file")))
        << name;
    EXPECT_THAT(error_of_change([&](Json& json) { json["shards"][1]["file"] = name; }),
                AllOf(StartsWith("corrupt"), HasSubstr("shards[1].file")))
        << name;
  }
}

TEST(ManifestTest, AWrongFieldIsNamed) {
  const auto with = [](const char* pointer, const Json& value) {
    return error_of_change([&](Json& json) { json[Json::json_pointer(pointer)] = value; });
  };
  EXPECT_THAT(with("/state/step", "x"), HasSubstr("state.step is not a number that fits"));
  EXPECT_THAT(with("/state/step", 1e30), HasSubstr("state.step is not a number that fits"));
  EXPECT_THAT(with("/state/seed", -1), HasSubstr("state.seed is not a number that fits"));
  EXPECT_THAT(with("/state/replicas", 1'000'000'000'000), HasSubstr("state.replicas"));
  EXPECT_THAT(with("/state/model", 3), HasSubstr("state.model is not text"));
  EXPECT_THAT(with("/state/notes", Json::array()), HasSubstr("state.notes is not an object"));
  EXPECT_THAT(with("/state/notes/k", 3), HasSubstr("state.notes holds more than text"));
  EXPECT_THAT(with("/state/dataset_fingerprint", "12"), HasSubstr("16 hexadecimal digits"));
  EXPECT_THAT(with("/shards/0/crc32", "1234567X"), HasSubstr("shards[0].crc32"));
  EXPECT_THAT(with("/shards", 3), HasSubstr("shards is not a list"));
  EXPECT_THAT(with("/shards/0", 3), HasSubstr("shards[0] is not an object"));
  EXPECT_THAT(with("/arrays/0/dtype", "float8"), HasSubstr("arrays[0].dtype unknown"));
  EXPECT_THAT(with("/arrays/0/shape", {1, 2, 3, 4, 5}), HasSubstr("too many extents"));
  EXPECT_THAT(with("/arrays/0/shape", {1ull << 40, 1ull << 40}), HasSubstr("too large"));
  EXPECT_THAT(with("/arrays/0/shape/0", -2), HasSubstr("extent that is no number"));
  EXPECT_THAT(with("/arrays/1/name", "a"), HasSubstr("arrays[1].name stands there twice"));
  EXPECT_THAT(error_of_change([](Json& json) { json.erase("arrays"); }),
              HasSubstr("arrays is missing"));
}

TEST(ManifestTest, DepthIsBounded) {
  Json deep = 1;
  for (int i = 0; i < 100; ++i) deep = Json::array({std::move(deep)});
  EXPECT_THAT(error_of_change([&](Json& json) { json["x"] = deep; }), HasSubstr("too deep"));
}

TEST(ManifestTest, TextThatIsNotUtf8IsRefusedWhenWriting) {
  Manifest manifest = example();
  manifest.state.dataset = "\xff";
  EXPECT_THROW(manifest_text(manifest), Error);
}

}  // namespace manifest_test
}  // namespace lockstep::test
