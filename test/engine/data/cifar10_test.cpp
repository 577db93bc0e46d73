// SPDX-License-Identifier: MIT
// Tests CIFAR-10 files. They are read as written and normalized by channel. Each defect is reported
// with its file and field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/data/cifar_file.h"
#include "engine/data/sets.h"

namespace lockstep::engine::data {
namespace cifar10_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// Returns byte i of a record's pixels; the planes are consecutive.
std::uint8_t byte(int label, std::size_t i) {
  return std::uint8_t(i * 7 + i / 256 + std::size_t(label) * 31);
}

std::string record(int label) {
  std::string text(1, char(label));
  for (std::size_t i = 0; i < kCifarPixels; ++i) text += char(byte(label, i));
  return text;
}

class Cifar10 : public testing::Test {
 protected:
  Cifar10() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cifar_test_XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    fill(folder_);
  }
  ~Cifar10() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  static void write(const std::filesystem::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  // Writes the files: number n holds labels n - 1 and n + 4, the test file holds label 9.
  static void fill(const std::filesystem::path& folder) {
    for (int n = 1; n <= 5; ++n) {
      write(folder / ("data_batch_" + std::to_string(n) + ".bin"), record(n - 1) + record(n + 4));
    }
    write(folder / "test_batch.bin", record(9));
  }

  // Returns the error of reading the folder as "corrupt: ...".
  std::string error() {
    try {
      cifar10(folder_.string());
    } catch (const Error& error) {
      return std::string(name(error.code())) + ": " + error.what();
    }
    return "none";
  }

  std::filesystem::path folder_;
};

void expect_image(const Dataset& set, std::uint64_t index, int label) {
  std::vector<float> input(kCifarPixels), target(1);
  set.read(index, input, target);
  EXPECT_EQ(target[0], float(label));
  const double means[] = {0.4914, 0.4822, 0.4465}, deviations[] = {0.2470, 0.2435, 0.2616};
  for (std::size_t p = 0; p < 1024; ++p) {
    for (std::size_t c = 0; c < 3; ++c) {
      const double v = double(byte(label, c * 1024 + p)) / 255;
      ASSERT_FLOAT_EQ(input[p * 3 + c], float((v - means[c]) / deviations[c])) << p << ' ' << c;
    }
  }
}

TEST_F(Cifar10, FilesAreReadInTurnAndChannelsStandTogether) {
  const Sets sets = cifar10(folder_.string());
  ASSERT_EQ(sets.train->size(), 10u);
  EXPECT_EQ(sets.train->input_shape(), (Shape{32, 32, 3}));
  EXPECT_EQ(sets.train->classes(), 10u);
  EXPECT_EQ(sets.train->target_columns(), 1u);
  for (int n = 1; n <= 5; ++n) {
    expect_image(*sets.train, std::uint64_t(2 * n - 2), n - 1);
    expect_image(*sets.train, std::uint64_t(2 * n - 1), n + 4);
  }
  ASSERT_NE(sets.test, nullptr);
  ASSERT_EQ(sets.test->size(), 1u);
  expect_image(*sets.test, 0, 9);
  EXPECT_EQ(sets.train->describe(),
            "cifar10 " + folder_.filename().string() + "/train: 10 of 32x32x3, 10 classes");
}

TEST_F(Cifar10, TheFolderOfTheArchiveIsFoundInTheFolder) {
  const std::uint64_t direct = cifar10(folder_.string()).train->fingerprint();
  const auto inner = folder_ / "in" / "cifar-10-batches-bin";
  std::filesystem::create_directories(inner);
  fill(inner);
  EXPECT_EQ(find_cifar10(folder_ / "in"), inner);
  EXPECT_EQ(cifar10((folder_ / "in").string()).train->fingerprint(), direct);
  EXPECT_EQ(find_cifar10(inner.parent_path().parent_path() / "none"), "");
}

TEST_F(Cifar10, TheTestFileMayBeMissingAndNoOther) {
  std::filesystem::remove(folder_ / "test_batch.bin");
  EXPECT_EQ(cifar10(folder_.string()).test, nullptr);
  std::filesystem::remove(folder_ / "data_batch_3.bin");
  EXPECT_THAT(error(), AllOf(StartsWith("io: "), HasSubstr("data_batch_3.bin is missing")));
  for (const int n : {1, 2, 4, 5}) {
    std::filesystem::remove(folder_ / ("data_batch_" + std::to_string(n) + ".bin"));
  }
  EXPECT_THAT(error(), AllOf(StartsWith("io: "), HasSubstr("data_batch_1.bin is missing")));
  std::filesystem::remove_all(folder_);
  EXPECT_THAT(error(), AllOf(StartsWith("io: "), HasSubstr("does not exist")));
}

TEST_F(Cifar10, ASizeThatIsNotOfWholeRecordsIsNamed) {
  write(folder_ / "data_batch_2.bin", record(1) + "x");
  EXPECT_THAT(error(), AllOf(StartsWith("corrupt: "), HasSubstr("data_batch_2.bin: size: 3074")));
  write(folder_ / "data_batch_2.bin", "");
  EXPECT_THAT(error(), AllOf(StartsWith("corrupt: "), HasSubstr("data_batch_2.bin: size: 0")));
}

// A copy that ended early, between two records, leaves such files.
TEST_F(Cifar10, FilesOfFewerRecordsAreToldInOneWarning) {
  std::filesystem::resize_file(folder_ / "data_batch_2.bin", 10'000 * kCifarRecord);
  std::filesystem::resize_file(folder_ / "data_batch_4.bin", 9'999 * kCifarRecord);
  EXPECT_THAT(cifar10(folder_.string()).warnings,
              ElementsAre("data: " + folder_.string() +
                          " holds less than CIFAR-10, of which each file has 10000 records: "
                          "data_batch_1.bin 2, data_batch_3.bin 2, data_batch_4.bin 9999, "
                          "data_batch_5.bin 2, test_batch.bin 1"));
}

TEST_F(Cifar10, ALabelAboveNineIsNamed) {
  write(folder_ / "test_batch.bin", record(9) + record(10));
  EXPECT_THAT(error(), AllOf(StartsWith("corrupt: "),
                             HasSubstr("test_batch.bin: label 10 of example 1: should be below")));
}

TEST_F(Cifar10, OtherPixelsAndOtherLabelsHaveOtherFingerprints) {
  const std::uint64_t first = cifar10(folder_.string()).train->fingerprint();
  std::string changed = record(4) + record(9);
  changed[100] ^= 1;
  write(folder_ / "data_batch_5.bin", changed);
  const std::uint64_t pixels = cifar10(folder_.string()).train->fingerprint();
  changed[100] ^= 1;
  changed[0] = 5;
  write(folder_ / "data_batch_5.bin", changed);
  const std::uint64_t labels = cifar10(folder_.string()).train->fingerprint();
  EXPECT_NE(pixels, first);
  EXPECT_NE(labels, first);
  EXPECT_NE(labels, pixels);
}

}  // namespace cifar10_test
}  // namespace lockstep::engine::data
