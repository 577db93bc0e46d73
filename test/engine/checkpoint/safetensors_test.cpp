// SPDX-License-Identifier: MIT
#include "engine/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "engine/base/error.h"
#include "test/engine/checkpoint/memory_storage.h"
#include "test/engine/checkpoint/scenario.h"

namespace lockstep::test {
namespace safetensors_test {

using engine::DType;
using engine::Error;
using engine::read_safetensors;
using engine::Safetensors;
using engine::Shape;
using engine::TensorSource;
using testing::AllOf;
using testing::HasSubstr;

std::string length_bytes(std::uint64_t length) {
  std::string text(sizeof length, '\0');
  std::memcpy(text.data(), &length, sizeof length);
  return text;
}

class SafetensorsTest : public testing::Test {
 protected:
  void put(const std::string& bytes) {
    storage_.create("f")->write(std::as_bytes(std::span(bytes)));
  }
  // Returns the error of reading a file with this header and `data` bytes of data; "none" if it is
  // valid.
  std::string error_of(const std::string& header, std::size_t data) {
    put(length_bytes(header.size()) + header + std::string(data, 'x'));
    return error_now();
  }
  std::string error_now() {
    try {
      read_safetensors(storage_, "f");
    } catch (const Error& error) {
      return std::string(engine::name(error.code())) + ": " + error.what();
    }
    return "none";
  }
  MemoryStorage storage_;
};

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   std::uint64_t begin, std::uint64_t end) {
  return "\"" + name + "\": {\"dtype\": \"" + dtype + "\", \"shape\": " + shape +
         ", \"data_offsets\": [" + std::to_string(begin) + ", " + std::to_string(end) + "]}";
}

TEST_F(SafetensorsTest, ReadsWhatItWrites) {
  const Arrays arrays = some_arrays(5);
  std::vector<TensorSource> sources;
  for (const NamedArray& array : arrays) {
    sources.push_back({array.name, array.dtype, array.shape, array.bytes.data()});
  }
  const engine::FileSum sum =
      write_safetensors(*storage_.create("f"), sources, {{"key", "5x5"}, {"\"", "\n"}});
  const auto& bytes = storage_.contents("f");
  EXPECT_EQ(sum.bytes, bytes.size());
  EXPECT_EQ(sum.crc, ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  const Safetensors file = read_safetensors(storage_, "f");
  EXPECT_EQ(file.bytes, bytes.size());
  EXPECT_EQ(file.metadata.at("key"), "5x5");
  EXPECT_EQ(file.metadata.at("\""), "\n");
  ASSERT_EQ(file.tensors.size(), arrays.size());
  for (const NamedArray& array : arrays) {
    const Safetensors::Entry& entry = file.tensors.at(array.name);
    EXPECT_EQ(entry.shape, array.shape);
    EXPECT_EQ(entry.dtype, array.dtype);
    EXPECT_EQ(entry.begin % size_of(array.dtype), 0u) << array.name << " is not aligned";
    EXPECT_TRUE(std::equal(bytes.begin() + std::ptrdiff_t(entry.begin),
                           bytes.begin() + std::ptrdiff_t(entry.end), array.bytes.begin(),
                           array.bytes.end()));
  }
}

TEST_F(SafetensorsTest, TheHeaderIsAsTheFormatSays) {
  const float values[2] = {1, 2};
  const TensorSource source{"w", DType::kFloat32, {2}, reinterpret_cast<const std::byte*>(values)};
  write_safetensors(*storage_.create("f"), {&source, 1}, {});
  const auto& bytes = storage_.contents("f");
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::string padded = header + std::string(7 - (header.size() + 7) % 8, ' ');
  EXPECT_EQ(text, length_bytes(padded.size()) + padded + std::string("\0\0\x80\x3f\0\0\0\x40", 8));
}

TEST_F(SafetensorsTest, AFileWithoutTensorsIsValid) {
  write_safetensors(*storage_.create("f"), {}, {});
  EXPECT_TRUE(read_safetensors(storage_, "f").tensors.empty());
  EXPECT_EQ(error_of("{}", 0), "none");
  EXPECT_EQ(error_of("{}      ", 0), "none");
}

TEST_F(SafetensorsTest, OrderInTheHeaderIsFree) {
  EXPECT_EQ(
      error_of("{" + tensor("b", "F64", "[1]", 4, 12) + "," + tensor("e", "I32", "[0]", 4, 4) +
                   "," + tensor("a", "I32", "[]", 0, 4) + "}",
               12),
      "none");
}

TEST_F(SafetensorsTest, WhatIsNotAHeaderIsRefused) {
  for (const char* header : {"[]", " {}", "{} x", "{\"a\": ", "{\"a\": 3}", "{\"a\": [1]}",
                             "{\"a\": null}", "\xef\xbb\xbf{}", "{\"__metadata__\": {\"k\": 3}}",
                             "{\"__metadata__\": 3}", "{\"__metadata__\": {\"k\": {}}}",
                             "{\"a\": {\"b\": {}}}", "{\"\xff\": {}}", "{,}", "{\"a\" 3}", "{}}"}) {
    EXPECT_THAT(error_of(header, 0), HasSubstr("corrupt: f: ")) << header;
  }
}

TEST_F(SafetensorsTest, AWrongFieldIsNamed) {
  const auto wrong = [&](const std::string& body) {
    return error_of("{\"a\": {" + body + "}}", 4);
  };
  EXPECT_EQ(wrong(R"("dtype": "F32", "shape": [1], "data_offsets": [0, 4])"), "none");
  EXPECT_THAT(wrong(R"("dtype": "F32", "shape": [1])"), HasSubstr("'a' has no data_offsets"));
  EXPECT_THAT(wrong(R"("shape": [1], "data_offsets": [0, 4])"), HasSubstr("'a' has no dtype"));
  EXPECT_THAT(wrong(R"("dtype": "F32", "data_offsets": [0, 4])"), HasSubstr("'a' has no shape"));
  EXPECT_THAT(wrong(R"("dtype": "BOOL", "shape": [4], "data_offsets": [0, 4])"),
              HasSubstr("'a' has dtype 'BOOL'; known are F32 F64 I32 I64 F16 BF16"));
  EXPECT_EQ(wrong(R"("dtype": "BF16", "shape": [2], "data_offsets": [0, 4])"), "none");
  EXPECT_THAT(wrong(R"("dtype": "F32", "shape": [1, 1, 1, 1, 1], "data_offsets": [0, 4])"),
              HasSubstr("more than 4 extents"));
  EXPECT_THAT(wrong(R"("dtype": "F32", "shape": [-1], "data_offsets": [0, 4])"),
              HasSubstr("a negative number"));
  EXPECT_THAT(wrong(R"("dtype": "F32", "shape": [1.0], "data_offsets": [0, 4])"),
              HasSubstr("a fraction"));
  EXPECT_THAT(wrong(R"("dtype": "F32", "shape": [1], "data_offsets": [0])"),
              HasSubstr("1 data_offsets"));
  EXPECT_THAT(wrong(R"("dtype": "F32", "shape": [1], "data_offsets": [0, 4, 4])"),
              HasSubstr("more than two data_offsets"));
  EXPECT_THAT(wrong(R"("dtype": "F32", "shape": [1], "data_offsets": [0, 4], "x": 1)"),
              HasSubstr("unknown field 'x'"));
  EXPECT_THAT(wrong(R"("dtype": "F32", "dtype": "F32", "shape": [1], "data_offsets": [0, 4])"),
              HasSubstr("'dtype' twice"));
}

TEST_F(SafetensorsTest, OverlapsHolesAndDuplicatesAreRefused) {
  const auto two = [&](const std::string& a, const std::string& b, std::size_t data) {
    return error_of("{" + a + "," + b + "}", data);
  };
  EXPECT_THAT(two(tensor("a", "F32", "[2]", 0, 8), tensor("b", "F32", "[2]", 4, 12), 12),
              HasSubstr("'b' begins at byte 4 of the data, the one before it ends at 8"));
  EXPECT_THAT(two(tensor("a", "F32", "[1]", 0, 4), tensor("b", "F32", "[1]", 8, 12), 12),
              HasSubstr("'b' begins at byte 8 of the data, the one before it ends at 4"));
  EXPECT_THAT(two(tensor("a", "F32", "[1]", 0, 4), tensor("a", "F32", "[1]", 4, 8), 8),
              HasSubstr("'a' stands there twice"));
  EXPECT_THAT(two("\"__metadata__\": {}", "\"__metadata__\": {}", 0), HasSubstr("twice"));
  EXPECT_THAT(error_of(R"({"__metadata__": {"k": "v", "k": "v"}})", 0), HasSubstr("twice"));
  EXPECT_THAT(error_of("{" + tensor("a", "F32", "[1]", 0, 4) + "}", 8),
              HasSubstr("end at byte 4 of the data, the file has 8"));
  EXPECT_THAT(error_of("{" + tensor("a", "F32", "[1]", 4, 8) + "}", 8),
              HasSubstr("begins at byte 4"));
}

TEST_F(SafetensorsTest, ShapesAndOffsetsMustAgreeAndFit) {
  const std::string max = "18446744073709551615";
  EXPECT_THAT(error_of("{" + tensor("a", "F32", "[3]", 0, 8) + "}", 8),
              HasSubstr("8 bytes by its data_offsets, 12 by its shape 3"));
  EXPECT_THAT(error_of("{" + tensor("a", "F32", "[1]", 0, 4) + "}", 3), HasSubstr("in 3 bytes"));
  EXPECT_THAT(error_of("{" + tensor("a", "F32", "[1]", 4, 0) + "}", 4),
              HasSubstr("'a' has data_offsets [4, 0]"));
  for (const char* shape :
       {"[4294967296, 4294967296]", "[18446744073709551615, 18446744073709551615]",
        "[4611686018427387905]", "[9223372036854775808, 2]"}) {
    EXPECT_THAT(error_of("{" + tensor("a", "F32", shape, 0, 4) + "}", 4), HasSubstr("too large"));
  }
  // A number one above the 64-bit maximum is not an integer to the JSON parser.
  EXPECT_THAT(error_of("{" + tensor("a", "F32", "[18446744073709551616]", 0, 4) + "}", 4),
              HasSubstr("a fraction in 'shape'"));
  EXPECT_THAT(
      error_of("{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [" + max + ", 3]}}",
               4),
      HasSubstr("'a' has data_offsets"));
}

TEST_F(SafetensorsTest, AHeaderLengthThatCannotBeIsRefused) {
  for (const std::uint64_t length :
       {std::uint64_t{1} << 63, ~std::uint64_t{0}, std::uint64_t{100'000'001}, std::uint64_t{5}}) {
    put(length_bytes(length) + "{}  ");
    EXPECT_THAT(error_now(), HasSubstr("corrupt: f: its header is")) << length;
  }
  put(length_bytes(2));
  EXPECT_THAT(error_now(), HasSubstr("too few"));
  put("");
  EXPECT_THAT(error_now(), HasSubstr("too few"));
}

// No bit flip may crash the reader, and an accepted file must still be without holes.
TEST_F(SafetensorsTest, NoFlippedBitOfAHeaderDoesHarm) {
  Arrays arrays = some_arrays(5);
  std::vector<TensorSource> sources;
  for (const NamedArray& array : arrays) {
    sources.push_back({array.name, array.dtype, array.shape, array.bytes.data()});
  }
  write_safetensors(*storage_.create("f"), sources, {{"key", "5x5"}});
  auto& bytes = storage_.contents("f");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  int refused = 0;
  for (std::size_t bit = 0; bit < 8 * (8 + length); ++bit) {
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
    try {
      std::uint64_t sum = 0;
      for (const auto& [name, entry] : read_safetensors(storage_, "f").tensors) {
        sum += entry.end - entry.begin;
      }
      EXPECT_EQ(sum, bytes.size() - 8 - length);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), engine::Code::kCorrupt);
      ++refused;
    }
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
  }
  EXPECT_GT(refused, int(4 * length));
}

TEST_F(SafetensorsTest, AMessageCannotBeForgedByAName) {
  EXPECT_EQ(engine::in_quotes("a\nb\x1b[2J"), "'a\\nb\\u001b[2J'");
  EXPECT_LE(engine::in_quotes(std::string(1000, '\x01')).size(), 80u);
  EXPECT_EQ(engine::in_quotes("\xff"), "'\\ufffd'");
}

// Runs `body` in a child process. Returns the growth of its peak memory in bytes.
std::size_t growth_of(const std::function<void()>& body) {
  int ends[2];
  if (::pipe(ends) != 0) return ~std::size_t{0};
  const pid_t child = ::fork();
  if (child == 0) {
    const auto most = [] {
      rusage usage{};
      ::getrusage(RUSAGE_SELF, &usage);
      return std::size_t(usage.ru_maxrss) * 1024;
    };
    const std::size_t before = most();
    body();
    const std::size_t growth = most() - before;
    ::_exit(::write(ends[1], &growth, sizeof growth) == sizeof growth ? 0 : 1);
  }
  ::close(ends[1]);
  std::size_t growth = ~std::size_t{0};
  if (::read(ends[0], &growth, sizeof growth) != sizeof growth) growth = ~std::size_t{0};
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return growth;
}

TEST(SafetensorsBombTest, LargeLiesCostLittleMemory) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/bomb";
  const auto expect_cheap = [&](const char* what, const char* reason) {
    const std::size_t growth = growth_of([&] {
      const auto storage = engine::posix_storage();
      try {
        read_safetensors(*storage, path);
        ::_exit(1);
      } catch (const Error& error) {
        if (std::string(error.what()).find(reason) == std::string::npos) ::_exit(1);
      }
    });
    EXPECT_LT(growth, std::size_t{160} << 20) << what;  // includes the thread sanitizer's share
  };
  {
    std::ofstream file(path, std::ios::binary);
    const std::string header = "{" + tensor("a", "F32", "[1]", 0, 4) + "}";
    file << length_bytes(header.size()) << header << "data";
  }
  std::filesystem::resize_file(path, std::uintmax_t{1} << 40);
  expect_cheap("a sparse file of 1 TiB", "the file has");
  std::filesystem::remove(path);
  {
    std::ofstream file(path, std::ios::binary);
    std::string header = "{";
    for (int i = 0; i < 1'000'000; ++i) {
      header += (i ? ",\"" : "\"") + std::to_string(i) +
                R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
    }
    header += "}";
    file << length_bytes(header.size()) << header;
  }
  expect_cheap("a header of a million tensors", "more than 100000 tensors");
  {
    std::ofstream file(path, std::ios::binary);
    file << length_bytes(50'000'000) << R"({"a":{"dtype":"F32","shape":)"
         << std::string(50'000'000, '[');
  }
  expect_cheap("a header of nested lists", "a list in 'shape'");
}

}  // namespace safetensors_test
}  // namespace lockstep::test
