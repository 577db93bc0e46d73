// SPDX-License-Identifier: MIT
// Tests summary files with an independent reader, a few lines for each layer of the format.
// test/tools/summary_test.py tests them with TensorBoard.
#include "engine/report/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <vector>

#include "engine/base/crc32c.h"
#include "engine/base/error.h"
#include "test/engine/checkpoint/scenario.h"

namespace lockstep::test {
namespace summary_test {

namespace fs = std::filesystem;
using engine::Summary;
using testing::HasSubstr;

template <class Number>
Number number_at(const std::string& bytes, std::size_t at) {
  Number number{};
  EXPECT_LE(at + sizeof number, bytes.size());
  if (at + sizeof number <= bytes.size()) std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

bool is_masked(std::uint32_t masked, std::string_view bytes) {
  const std::uint32_t rotated = masked - 0xa282ead8u;
  return ((rotated >> 17) | (rotated << 15)) == engine::crc32c(bytes);
}

// Returns the data of all records. Both checksums of each must be right, and no bytes may remain.
std::vector<std::string> records(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string file = text.str();
  std::vector<std::string> data;
  std::size_t at = 0;
  while (at + 16 <= file.size()) {
    const auto length = number_at<std::uint64_t>(file, at);
    EXPECT_TRUE(is_masked(number_at<std::uint32_t>(file, at + 8), file.substr(at, 8)));
    if (length > file.size() - at - 16) break;
    data.push_back(file.substr(at + 12, length));
    EXPECT_TRUE(is_masked(number_at<std::uint32_t>(file, at + 12 + length), data.back()));
    at += length + 16;
  }
  EXPECT_EQ(at, file.size()) << "the file does not end with a record";
  return data;
}

// Represents a protobuf message: the last value of each field, raw (numbers as 8 bytes), and all
// values of field 1.
struct Message {
  std::map<int, std::string> fields;
  std::vector<std::string> all;
};
Message parse(const std::string& bytes) {
  Message message;
  std::size_t at = 0;
  auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0; at < bytes.size(); shift += 7) {
      value |= std::uint64_t(bytes[at] & 0x7f) << shift;
      if ((bytes[at++] & 0x80) == 0) break;
    }
    return value;
  };
  while (at < bytes.size()) {
    const std::uint64_t key = varint();
    std::string value;
    const std::uint64_t number = (key & 7) == 0 ? varint() : 0;
    if ((key & 7) == 0) {
      value.assign(reinterpret_cast<const char*>(&number), 8);
    } else {
      const std::size_t size = (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : varint();
      value = bytes.substr(at, size);
      at += size;
    }
    message.fields[int(key >> 3)] = value;
    if (key >> 3 == 1) message.all.push_back(value);
  }
  return message;
}

std::map<std::string, float> scalars(const Message& event) {
  std::map<std::string, float> values;
  for (const std::string& value : parse(event.fields.at(5)).all) {
    const Message scalar = parse(value);
    values[scalar.fields.at(1)] = number_at<float>(scalar.fields.at(2), 0);
  }
  return values;
}

TEST(SummaryTest, ScalarsByStepInRecordsWithValidChecksums) {
  const TemporaryFolder folder;
  LogLines lines;
  Summary summary(folder.path() + "/a/b", lines.log());  // created if missing
  summary.write(300, {{"train/loss", 0.125}, {"train/rate", 1e-3}});
  summary.write(1ll << 40, {{"train/loss", std::numeric_limits<double>::quiet_NaN()}});
  const std::vector<std::string> data = records(summary.path());
  ASSERT_EQ(data.size(), 4u);
  const Message version = parse(data[0]), start = parse(data[1]), first = parse(data[2]),
                second = parse(data[3]);
  EXPECT_EQ(version.fields.at(3), "brain.Event:2");
  EXPECT_GT(number_at<double>(version.fields.at(1), 0), 1.7e9);  // seconds since 1970
  EXPECT_EQ(number_at<std::int64_t>(start.fields.at(2), 0), 300);
  EXPECT_EQ(number_at<std::int64_t>(parse(start.fields.at(7)).fields.at(1), 0), 1);  // START
  EXPECT_EQ(number_at<std::int64_t>(first.fields.at(2), 0), 300);
  EXPECT_EQ(scalars(first),
            (std::map<std::string, float>{{"train/loss", 0.125f}, {"train/rate", 1e-3f}}));
  EXPECT_EQ(number_at<std::int64_t>(second.fields.at(2), 0), 1ll << 40);
  EXPECT_TRUE(std::isnan(scalars(second).at("train/loss")));
  EXPECT_EQ(lines.all(), "");
}

TEST(SummaryTest, TheMarkStandsAtTheFirstStepOfTheRunWhereverItsFirstPointStands) {
  const TemporaryFolder folder;
  LogLines lines;
  Summary summary(folder.path(), lines.log());
  summary.begin(9);
  summary.begin(4);
  summary.write(8, {{"test/loss", 1}});
  const std::vector<std::string> data = records(summary.path());
  ASSERT_EQ(data.size(), 3u);
  EXPECT_EQ(number_at<std::int64_t>(parse(data[1]).fields.at(2), 0), 9);
  EXPECT_EQ(parse(data[1]).fields.count(7), 1u);
  EXPECT_EQ(number_at<std::int64_t>(parse(data[2]).fields.at(2), 0), 8);
}

TEST(SummaryTest, EachRunHasAFileOfItsOwn) {
  const TemporaryFolder folder;
  LogLines lines;
  Summary first(folder.path(), lines.log()), second(folder.path(), lines.log());
  EXPECT_NE(first.path(), second.path());
  EXPECT_THAT(fs::path(first.path()).filename().string(),
              testing::StartsWith("events.out.tfevents."));
  first.write(0, {{"a", 1}});
  second.write(1, {{"a", 2}});
  EXPECT_EQ(records(first.path()).size(), 3u);
  EXPECT_EQ(records(second.path()).size(), 3u);
}

TEST(SummaryTest, AFolderThatCannotBeIsSaidAtOnce) {
  const TemporaryFolder folder;
  LogLines lines;
  std::ofstream(folder.path() + "/file") << "text";
  for (const std::string& path : {folder.path() + "/file", folder.path() + "/file/below"}) {
    try {
      Summary summary(path, lines.log());
      ADD_FAILURE() << path;
    } catch (const engine::Error& error) {
      EXPECT_EQ(error.code(), engine::Code::kIo);
      EXPECT_THAT(error.what(), HasSubstr(path));
    }
  }
}

// A limit on file sizes stands in for a full disk.
TEST(SummaryTest, AFullDiskIsReportedOnceAndTheFileStaysWhole) {
  const TemporaryFolder folder;
  LogLines lines;
  Summary summary(folder.path(), lines.log());
  summary.write(0, {{"a", 1}});
  const auto size = fs::file_size(summary.path());
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{size + 10, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  for (int step = 1; step < 4; ++step) summary.write(step, {{"a", 1}});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(fs::file_size(summary.path()), size);
  const std::string said = lines.all();
  EXPECT_THAT(said, HasSubstr("cannot write " + summary.path()));
  EXPECT_EQ(said.find("cannot write"), said.rfind("cannot write")) << said;
  summary.write(4, {{"a", 5}});  // there is room again
  EXPECT_EQ(records(summary.path()).size(), 4u);
}

}  // namespace summary_test
}  // namespace lockstep::test
