// SPDX-License-Identifier: MIT
// Tests Criteo's text format. Files are read as written, in any order; each defect is reported with
// its file, line, and field.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/data/clicks.h"

namespace lockstep::engine::data {
namespace criteo_test {

using testing::AllOf;
using testing::HasSubstr;

std::string joined(const std::vector<std::string>& fields) {
  std::string line;
  for (const std::string& field : fields) line += (&field == &fields[0] ? "" : "\t") + field;
  return line;
}

// Returns the fields of example i: clicked if i is odd, numbers i + column, words i * 26 + column.
std::vector<std::string> fields_of(std::uint64_t i) {
  std::vector<std::string> fields{i % 2 == 1 ? "1" : "0"};
  for (std::size_t c = 0; c < kClickNumbers; ++c) fields.push_back(std::to_string(i + c));
  for (std::size_t c = 0; c < kClickFields; ++c)
    fields.push_back(fmt::format("{:08x}", i * 26 + c));
  return fields;
}

class Criteo : public testing::Test {
 protected:
  Criteo() {
    std::string pattern = (std::filesystem::temp_directory_path() / "criteo_XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = (folder_ / "day.tsv").string();
  }
  ~Criteo() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  void write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  void write_compressed(const std::string& text) {
    gzFile file = gzopen(path_.c_str(), "wb");
    EXPECT_EQ(gzwrite(file, text.data(), unsigned(text.size())), int(text.size()));
    EXPECT_EQ(gzclose(file), Z_OK);
  }
  // Writes three valid lines, except that field `field` of the second, counted from 1, is `text`.
  void spoil(std::size_t field, const std::string& text) {
    std::vector<std::string> fields = fields_of(1);
    fields[field - 1] = text;
    write(joined(fields_of(0)) + "\n" + joined(fields) + "\n" + joined(fields_of(2)) + "\n");
  }
  std::string error() {
    try {
      criteo(path_);
    } catch (const Error& error) {
      return std::string(name(error.code())) + ": " + error.what();
    }
    return "none";
  }

  std::filesystem::path folder_;
  std::string path_;
};

struct Example {
  std::array<float, kClickColumns> input{};
  std::array<float, 1> target{};
};

Example read(const Dataset& set, std::uint64_t index) {
  Example example;
  set.read(index, example.input, example.target);
  return example;
}

TEST_F(Criteo, LinesAreReadInAnyOrder) {
  write(joined(fields_of(0)) + "\n" + joined(fields_of(1)) + "\n" + joined(fields_of(2)) + "\n");
  const Sets sets = criteo(path_, 500);
  EXPECT_EQ(sets.test, nullptr);
  const Dataset& set = *sets.train;
  EXPECT_EQ(set.size(), 3u);
  EXPECT_EQ(set.input_shape(), (Shape{39}));
  EXPECT_EQ(set.target_columns(), 1u);
  EXPECT_EQ(set.classes(), 2u);
  EXPECT_EQ(set.describe(), "criteo day.tsv: 3 of 13 numbers and 26 ids below 500");
  for (std::uint64_t i : {2u, 0u, 1u}) {
    const Example example = read(set, i);
    EXPECT_EQ(example.target[0], i % 2);
    for (std::size_t c = 0; c < kClickNumbers; ++c) {
      EXPECT_EQ(example.input[c], float(std::log(1.0 + double(i + c))));
    }
    for (std::size_t c = kClickNumbers; c < kClickColumns; ++c) {
      EXPECT_GE(example.input[c], 0);
      EXPECT_LT(example.input[c], 500);
      EXPECT_EQ(example.input[c], std::floor(example.input[c]));
    }
  }
}

TEST_F(Criteo, TheLastLineNeedsNoEnd) {
  const std::string text = joined(fields_of(0)) + "\n" + joined(fields_of(1));
  write(text + "\n");
  const Sets ended = criteo(path_);
  const Example expected = read(*ended.train, 1);
  write(text);
  const Sets open = criteo(path_);
  EXPECT_EQ(open.train->size(), 2u);
  EXPECT_EQ(read(*open.train, 1).input, expected.input);
}

TEST_F(Criteo, EmptyAndNegativeNumbersAreZeroAndNoWordIsAWordOfItsOwn) {
  std::vector<std::string> fields = fields_of(4);
  fields[1] = "";
  fields[2] = "-3";
  fields[3] = "9223372036854775807";
  std::vector<std::string> zeros = fields;
  for (std::size_t f = 14; f < 40; ++f) {
    fields[f] = "";
    zeros[f] = "0";
  }
  write(joined(fields) + "\n" + joined(zeros) + "\n");
  const Sets sets = criteo(path_, kMostBuckets);
  const Example example = read(*sets.train, 0), zero = read(*sets.train, 1);
  EXPECT_EQ(example.input[0], 0);
  EXPECT_EQ(example.input[1], 0);
  EXPECT_NEAR(example.input[2], 63 * std::log(2), 1e-5);
  // The buckets of (field, empty) and (field, 0) are all different among sixteen million.
  std::set<float> ids(example.input.begin() + 13, example.input.end());
  ids.insert(zero.input.begin() + 13, zero.input.end());
  EXPECT_EQ(ids.size(), 52u);
}

TEST_F(Criteo, AWordFallsIntoTheSameBucketEverywhereAndWordsSpread) {
  std::string text;
  for (std::uint64_t i = 0; i < 2000; ++i) text += joined(fields_of(i)) + "\n";
  write(text);
  const Sets sets = criteo(path_, 100);
  std::vector<int> met(100);
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const Example example = read(*sets.train, i);
    for (std::size_t c = 13; c < 39; ++c) ++met[std::size_t(example.input[c])];
  }
  for (int count : met) EXPECT_NEAR(count, 520, 120);
  const Example seventh = read(*sets.train, 7);
  write(joined(fields_of(7)) + "\n");
  EXPECT_EQ(read(*criteo(path_, 100).train, 0).input, seventh.input);
}

// The file is longer than the blocks in which it is scanned.
TEST_F(Criteo, LinesThatCrossBlocksAreWhole) {
  constexpr std::uint64_t kLines = 9000;
  {
    std::ofstream file(path_, std::ios::binary);
    for (std::uint64_t i = 0; i < kLines; ++i) file << joined(fields_of(i)) << "\n";
  }
  ASSERT_GT(std::filesystem::file_size(path_), std::uintmax_t(2) << 20);
  const Sets sets = criteo(path_);
  ASSERT_EQ(sets.train->size(), kLines);
  for (std::uint64_t i = 0; i < kLines; i += 7) {
    EXPECT_EQ(read(*sets.train, i).input[4], float(std::log1p(double(i + 4)))) << i;
  }
}

TEST_F(Criteo, EachWrongFieldIsNamed) {
  const auto expect = [&](std::size_t field, const std::string& text, const std::string& right) {
    spoil(field, text);
    EXPECT_THAT(error(), AllOf(HasSubstr("corrupt: data: " + path_ + ": line 2: field " +
                                         std::to_string(field) + ": '"),
                               HasSubstr(right)));
  };
  expect(1, "", "the label 0 or 1");
  expect(1, "2", "the label 0 or 1");
  expect(2, "1.5", "a whole number");
  expect(14, "12a", "a whole number");
  expect(3, "9223372036854775808", "a whole number of 64 bits");
  expect(3, " 1", "a whole number");
  expect(15, "68fd1e64z", "a hexadecimal word");
  expect(40, "100000000", "a hexadecimal word of 32 bits");
  expect(40, "-1", "a hexadecimal word");
  expect(20, "0x10", "a hexadecimal word");
  expect(40, "68fd1e64\r\r", "'68fd1e64?'");
  expect(2, std::string(500, '7'), "7777...', should be a whole number");
  expect(2, std::string("1\0", 2), "'1?'");
  spoil(5, "17");
  EXPECT_EQ(error(), "none");
}

// The variants are line ends, byte order mark, and empty lines of other systems, and compression.
TEST_F(Criteo, TheUsualVariantsAreRead) {
  const std::string first = joined(fields_of(0)), second = joined(fields_of(1));
  write(first + "\n" + second + "\n");
  const Sets plain = criteo(path_);
  const Example before = read(*plain.train, 0), expected = read(*plain.train, 1);
  const std::string path = path_;
  for (const std::string& text :
       {first + "\r\n" + second + "\r\n", first + "\n" + second + "\n\n\r\n",
        "\xef\xbb\xbf" + first + "\n" + second + "\n", first + "\r\n" + second + "\r\n\r\n"}) {
    path_ = path;
    write(text);
    const Sets sets = criteo(path_);
    ASSERT_EQ(sets.train->size(), 2u) << text;
    EXPECT_EQ(read(*sets.train, 0).input, before.input);
    EXPECT_EQ(read(*sets.train, 1).input, expected.input);
    EXPECT_EQ(read(*sets.train, 1).target, expected.target);
    path_ = path + ".gz";
    write_compressed(text);
    const Sets inflated = criteo(path_);
    EXPECT_EQ(read(*inflated.train, 1).input, expected.input);
    EXPECT_EQ(inflated.train->fingerprint(), sets.train->fingerprint());
  }
}

TEST_F(Criteo, ALongCompressedFileIsReadAnywhere) {
  std::string text;
  for (std::uint64_t i = 0; i < 9000; ++i) text += joined(fields_of(i)) + "\n";
  write_compressed(text);
  const Sets sets = criteo(path_);
  ASSERT_EQ(sets.train->size(), 9000u);
  for (const std::uint64_t i : {8999u, 4000u, 0u})
    EXPECT_EQ(read(*sets.train, i).input[4], float(std::log1p(double(i + 4)))) << i;
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 3);
  EXPECT_THAT(error(), AllOf(HasSubstr("corrupt: "), HasSubstr("gzip: ends before its checksum")));
  write_compressed(std::string(64 << 20, '\0'));
  EXPECT_THAT(error(), HasSubstr("line 1: longer than 4096 bytes"));
}

TEST_F(Criteo, ATestFileStandsBesideTheTrainingFile) {
  write(joined(fields_of(0)) + "\n");
  const std::string train = std::exchange(path_, path_ + ".test");
  write(joined(fields_of(1)) + "\n" + joined(fields_of(2)) + "\n");
  const Sets sets = criteo(train, 500, path_);
  EXPECT_EQ(sets.train->size(), 1u);
  EXPECT_EQ(sets.test->size(), 2u);
  EXPECT_EQ(sets.test->describe(), "criteo day.tsv.test: 2 of 13 numbers and 26 ids below 500");
}

TEST_F(Criteo, NearMissesAreNamed) {
  const auto said = [&](const std::string& text) {
    write(text);
    return error();
  };
  const std::string good = joined(fields_of(0));
  std::string commas = good;
  std::ranges::replace(commas, '\t', ',');
  EXPECT_THAT(said(commas + "\n"), HasSubstr("commas stand between its 40 fields: write tabs"));
  EXPECT_THAT(said(good.substr(2) + "\n"),
              AllOf(HasSubstr("39 fields"), HasSubstr("lack its label")));
  EXPECT_THAT(said("label" + good.substr(1) + "\n" + good), HasSubstr("where it is a heading"));
  EXPECT_THAT(said("<html>"), HasSubstr("a web page"));
  EXPECT_THAT(said("PK\x03\x04 and so on"), HasSubstr("a zip archive: unpack it"));
  EXPECT_THAT(said(good + "\n\n" + good), HasSubstr("line 2 is empty, and others follow it"));
  path_ = folder_.string();
  EXPECT_THAT(error(), HasSubstr("name one file; the folder holds day.tsv"));
}

TEST_F(Criteo, LinesOfAnotherFormAreRefused) {
  const std::string good = joined(fields_of(0));
  write(good + "\na\n" + good + "\n");
  EXPECT_THAT(error(), HasSubstr("corrupt: data: " + path_ + ": line 2: 1 fields with tabs"));
  write(good + "\n" + good + "\t5\n");
  EXPECT_THAT(error(), AllOf(HasSubstr("line 2: 41 fields"), HasSubstr("should be 40: a label")));
  write(good.substr(0, good.rfind('\t')) + "\n");
  EXPECT_THAT(error(), HasSubstr("line 1: 39 fields"));
  write("");
  EXPECT_EQ(error(), "corrupt: data: " + path_ + ": no lines");
  write(good + "\n" + std::string(5000, 'a') + "\n");
  EXPECT_THAT(error(), HasSubstr("line 2: longer than 4096 bytes"));
  write(good + "\n" + std::string(3 << 20, 'a'));
  EXPECT_THAT(error(), HasSubstr("line 2: longer than 4096 bytes"));
  std::filesystem::remove(path_);
  EXPECT_THAT(error(), HasSubstr("io: data: " + path_ + " cannot be opened: No such file"));
  path_ = folder_.string();
  EXPECT_THAT(error(), HasSubstr("is not a file"));
}

TEST_F(Criteo, AFileThatBecomesShorterIsNamed) {
  const std::string good = joined(fields_of(0));
  write(good + "\n" + good + "\n");
  const Sets sets = criteo(path_);
  std::filesystem::resize_file(path_, good.size() + 10);
  read(*sets.train, 0);
  EXPECT_THAT([&] { read(*sets.train, 1); },
              testing::ThrowsMessage<Error>(AllOf(HasSubstr(path_ + ": line 2: "),
                                                  HasSubstr("shorter since it was opened"))));
}

TEST_F(Criteo, FingerprintsFollowTheBytes) {
  spoil(5, "17");
  const std::uint64_t first = criteo(path_).train->fingerprint();
  EXPECT_EQ(criteo(path_).train->fingerprint(), first);
  EXPECT_NE(criteo(path_, 7).train->fingerprint(), first);
  spoil(5, "18");
  EXPECT_NE(criteo(path_).train->fingerprint(), first);
}

}  // namespace criteo_test
}  // namespace lockstep::engine::data
