// SPDX-License-Identifier: MIT
// Tests IDX files. They are read as written, plain or compressed. Each defect is reported with its
// file and field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/data/idx_file.h"
#include "engine/data/sets.h"

namespace lockstep::engine::data {
namespace idx_test {

using testing::AllOf;
using testing::HasSubstr;
using Bytes = std::string;

Bytes big_endian(std::uint32_t v) {
  return {char(v >> 24), char(v >> 16 & 0xff), char(v >> 8 & 0xff), char(v & 0xff)};
}

// Returns images in which pixel j of image i is 7 i + j, modulo 256.
Bytes images(std::uint32_t count, std::uint32_t height, std::uint32_t width) {
  Bytes file = big_endian(0x803) + big_endian(count) + big_endian(height) + big_endian(width);
  for (std::uint32_t i = 0; i < count; ++i) {
    for (std::uint32_t j = 0; j < height * width; ++j) file += char(7 * i + j);
  }
  return file;
}

Bytes labels(const std::vector<int>& values) {
  Bytes file = big_endian(0x801) + big_endian(std::uint32_t(values.size()));
  for (const int value : values) file += char(value);
  return file;
}

Bytes compressed(const Bytes& plain) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY);
  Bytes out(deflateBound(&stream, plain.size()) + 64, '\0');
  Bytes in = plain;
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = uInt(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = uInt(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// Provides a folder of three training images of 2x3 and two test images; each test spoils
// something.
class Idx : public testing::Test {
 protected:
  static constexpr const char* kImages = "train-images-idx3-ubyte";
  static constexpr const char* kLabels = "train-labels-idx1-ubyte";

  Idx() {
    std::string pattern = (std::filesystem::temp_directory_path() / "idx_test_XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    write(kImages, images(3, 2, 3));
    write(kLabels, labels({4, 0, 9}));
    write("t10k-images-idx3-ubyte", images(2, 2, 3));
    write("t10k-labels-idx1-ubyte", labels({1, 2}));
  }
  ~Idx() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  void write(const std::string& name, const Bytes& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  void remove(const std::string& name) { std::filesystem::remove(folder_ / name); }

  // Returns the error of reading the folder as "corrupt: ...".
  std::string error() {
    try {
      idx(folder_.string());
    } catch (const Error& error) {
      return std::string(name(error.code())) + ": " + error.what();
    }
    return "none";
  }

  std::filesystem::path folder_;
};

void expect_three_images(const Dataset& set) {
  EXPECT_EQ(set.size(), 3u);
  EXPECT_EQ(set.input_shape(), (Shape{2, 3, 1}));
  EXPECT_EQ(set.target_columns(), 1u);
  EXPECT_EQ(set.classes(), 10u);
  const std::vector<float> targets = {4, 0, 9};
  for (std::uint64_t i = 0; i < 3; ++i) {
    std::vector<float> input(6), target(1);
    set.read(i, input, target);
    EXPECT_EQ(target[0], targets[i]);
    for (std::size_t j = 0; j < 6; ++j) {
      EXPECT_FLOAT_EQ(input[j], float((double(7 * i + j) / 255 - 0.5) * 2));
    }
  }
}

TEST_F(Idx, PlainFilesAreRead) {
  const Sets sets = idx(folder_.string());
  EXPECT_EQ(sets.around, -1) << "what a byte of 0 becomes";
  expect_three_images(*sets.train);
  ASSERT_NE(sets.test, nullptr);
  EXPECT_EQ(sets.test->size(), 2u);
  EXPECT_EQ(sets.test->classes(), 10u);
  const std::string name = folder_.filename().string();
  EXPECT_EQ(sets.train->describe(), "idx " + name + "/train: 3 of 2x3x1, 10 classes");
  EXPECT_EQ(sets.test->describe(), "idx " + name + "/test: 2 of 2x3x1, 10 classes");
  EXPECT_EQ(idx(folder_.string() + "/").train->describe(), sets.train->describe());
}

TEST_F(Idx, PixelsGoFromMinusOneToOne) {
  write(kImages, big_endian(0x803) + big_endian(3) + big_endian(1) + big_endian(1) + "\xff" +
                     Bytes(1, '\0') + "\x33");
  const Sets sets = [&] {
    remove("t10k-images-idx3-ubyte");
    remove("t10k-labels-idx1-ubyte");
    return idx(folder_.string());
  }();
  std::vector<float> input(1), target(1);
  for (const auto& [index, value] : {std::pair{0, 1.0f}, {1, -1.0f}, {2, -0.6f}}) {
    sets.train->read(std::uint64_t(index), input, target);
    EXPECT_FLOAT_EQ(input[0], value);
  }
}

TEST_F(Idx, CompressedFilesAreRead) {
  write(std::string(kImages) + ".gz", compressed(images(3, 2, 3)));
  write(std::string(kLabels) + ".gz", compressed(labels({4, 0, 9})));
  remove(kImages);
  remove(kLabels);
  expect_three_images(*idx(folder_.string()).train);
}

TEST_F(Idx, TheFirstBytesSayWhetherAFileIsCompressedAndNotItsName) {
  write(kImages, compressed(images(3, 2, 3)));
  write(std::string(kLabels) + ".gz", labels({4, 0, 9}));
  remove(kLabels);
  expect_three_images(*idx(folder_.string()).train);
}

// Archives and Kaggle use these names: a dot for a dash, a folder with the file's name.
TEST_F(Idx, FilesAreReadUnderTheirUsualNames) {
  const Bytes pixels = images(3, 2, 3), classes = labels({4, 0, 9});
  remove(kImages);
  remove(kLabels);
  write("train-images.idx3-ubyte", pixels);
  write("train-labels.idx1-ubyte.gz", compressed(classes));
  expect_three_images(*idx(folder_.string()).train);
  remove("train-images.idx3-ubyte");
  remove("train-labels.idx1-ubyte.gz");
  std::filesystem::create_directory(folder_ / kImages);
  std::filesystem::create_directory(folder_ / "train-labels.idx1-ubyte");
  write(std::string(kImages) + "/" + kImages, pixels);
  write(std::string("train-labels.idx1-ubyte/") + kLabels + ".gz", compressed(classes));
  expect_three_images(*idx(folder_.string()).train);
}

TEST_F(Idx, NearMissesAreNamed) {
  const auto rename = [&](const std::string& from, const std::string& to) {
    std::filesystem::rename(folder_ / from, folder_ / to);
  };
  rename(kImages, "emnist-Train-images-idx3-ubyte");
  EXPECT_THAT(error(),
              HasSubstr("there is emnist-Train-images-idx3-ubyte: if that is meant, rename "
                        "it to train-images-idx3-ubyte"));
  std::filesystem::create_directories(folder_ / "MNIST" / "raw");
  rename("emnist-Train-images-idx3-ubyte", std::string("MNIST/raw/") + kImages);
  EXPECT_THAT(error(), HasSubstr((folder_ / "MNIST/raw").string() + " has it: name that folder"));
  std::filesystem::remove_all(folder_ / "MNIST");
  EXPECT_THAT(error(), HasSubstr("the folder holds t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, "
                                 "train-labels-idx1-ubyte"));
  write(kImages, images(3, 2, 3));
  remove("t10k-labels-idx1-ubyte");
  rename("t10k-images-idx3-ubyte", "test-images-idx3-ubyte");
  const Sets sets = idx(folder_.string());
  EXPECT_EQ(sets.test, nullptr);
  EXPECT_THAT(sets.warnings, testing::ElementsAre(AllOf(HasSubstr("test-images-idx3-ubyte"),
                                                        HasSubstr("t10k-images-idx3-ubyte"))));
}

TEST_F(Idx, WhatAFileIsInsteadIsNamed) {
  for (const auto& [bytes, kind] :
       {std::pair{Bytes("<!DOCTYPE html><html><body>404"), "a web page"},
        {Bytes("\n  <html>"), "a web page"},
        {Bytes("PK\x03\x04rest of it"), "a zip archive: unpack it"},
        {Bytes("version https://git-lfs.github.com/spec/v1\noid"), "git lfs pull"},
        {compressed(compressed(images(3, 2, 3))), "compressed by gzip: inflate it"}}) {
    write(kImages, bytes);
    EXPECT_THAT(error(), AllOf(HasSubstr("corrupt: "), HasSubstr(kImages), HasSubstr(kind)));
  }
}

TEST_F(Idx, EqualDataHaveEqualFingerprintsAndOthersNot) {
  const auto fingerprint = [&] { return idx(folder_.string()).train->fingerprint(); };
  const std::uint64_t first = fingerprint();
  write(kImages, compressed(images(3, 2, 3)));
  EXPECT_EQ(fingerprint(), first);
  write(kLabels, labels({4, 0, 8}));
  EXPECT_NE(fingerprint(), first);
  write(kLabels, labels({4, 0, 9}));
  Bytes other = images(3, 2, 3);
  other.back() ^= 1;
  write(kImages, other);
  EXPECT_NE(fingerprint(), first);
  write(kImages, images(3, 3, 2));
  remove("t10k-images-idx3-ubyte");
  remove("t10k-labels-idx1-ubyte");
  EXPECT_NE(fingerprint(), first);
}

TEST_F(Idx, TheTestSetMayBeMissingButNotHalfOfIt) {
  remove("t10k-labels-idx1-ubyte");
  EXPECT_THAT(error(), AllOf(HasSubstr("io: "), HasSubstr("t10k-labels-idx1-ubyte is missing")));
  remove("t10k-images-idx3-ubyte");
  const Sets sets = idx(folder_.string());
  EXPECT_EQ(sets.test, nullptr);
  EXPECT_EQ(sets.train->size(), 3u);
}

TEST_F(Idx, MoreThanTenClassesAreCountedInTheTrainingLabels) {
  write(kLabels, labels({4, 61, 9}));
  const Sets sets = idx(folder_.string());
  EXPECT_EQ(sets.train->classes(), 62u);
  EXPECT_EQ(sets.test->classes(), 62u);
}

TEST_F(Idx, ALabelThatNoTrainingExampleHasIsNamed) {
  write("t10k-labels-idx1-ubyte", labels({1, 10}));
  EXPECT_THAT(error(),
              AllOf(HasSubstr("corrupt: "), HasSubstr("t10k-labels-idx1-ubyte: label 10 "
                                                      "of example 1: should be below 10")));
}

TEST_F(Idx, AMissingFileAndAMissingFolderAreNamed) {
  remove(kLabels);
  EXPECT_THAT(error(), AllOf(HasSubstr("io: "), HasSubstr("train-labels-idx1-ubyte is missing, and "
                                                          "so is train-labels-idx1-ubyte.gz")));
  std::filesystem::create_directory(folder_ / kLabels);
  EXPECT_THAT(error(),
              AllOf(HasSubstr("io: "), HasSubstr("train-labels-idx1-ubyte is not a file")));
  folder_ /= kImages;
  EXPECT_THAT(error(), AllOf(HasSubstr("io: "), HasSubstr("is not a folder")));
  folder_ += "-nowhere";
  EXPECT_THAT(error(), AllOf(HasSubstr("io: "), HasSubstr("does not exist")));
  folder_ = folder_.parent_path();
}

TEST_F(Idx, AWrongMagicNumberIsNamed) {
  write(kImages, labels({1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_THAT(error(), AllOf(HasSubstr("corrupt: "), HasSubstr(kImages),
                             HasSubstr("magic: 0x00000801, should be 0x00000803")));
  write(kImages, images(3, 2, 3));
  write(kLabels, Bytes("PNG, perhaps"));
  EXPECT_THAT(error(), AllOf(HasSubstr(kLabels), HasSubstr("should be 0x00000801")));
}

TEST_F(Idx, EveryTruncationIsFound) {
  const Bytes whole = images(3, 2, 3);
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    write(kImages, whole.substr(0, bytes));
    EXPECT_THAT(error(), AllOf(HasSubstr("corrupt: "), HasSubstr(kImages))) << bytes;
  }
  EXPECT_THAT(error(), HasSubstr("size: header and 3x2x3 elements need 34 bytes, the file has 33"));
  write(kImages, whole.substr(0, 7));
  EXPECT_THAT(error(), HasSubstr("header: ends after 7 of 16 bytes"));
}

TEST_F(Idx, EveryTruncationOfACompressedFileIsFound) {
  const Bytes whole = compressed(images(3, 2, 3));
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    write(kImages, whole.substr(0, bytes));
    EXPECT_THAT(error(), AllOf(HasSubstr("corrupt: "), HasSubstr(kImages))) << bytes;
  }
}

TEST_F(Idx, TrailingBytesAreFound) {
  write(kLabels, labels({4, 0, 9}) + "x");
  EXPECT_THAT(error(), AllOf(HasSubstr("corrupt: "), HasSubstr(kLabels),
                             HasSubstr("need 11 bytes, the file has 12")));
  write(kLabels, compressed(labels({4, 0, 9}) + "x"));
  EXPECT_THAT(error(),
              AllOf(HasSubstr("corrupt: "), HasSubstr("bytes trail after the 3 that the header")));
}

TEST_F(Idx, ADamagedCompressedFileIsFound) {
  Bytes file = compressed(images(3, 2, 3));
  file[file.size() - 6] ^= 1;  // in the checksum
  write(kImages, file);
  EXPECT_THAT(error(), AllOf(HasSubstr("corrupt: "), HasSubstr(kImages), HasSubstr("gzip: ")));
}

TEST_F(Idx, CountsOfImagesAndLabelsMustBeEqual) {
  write(kLabels, labels({4, 0}));
  EXPECT_THAT(error(),
              AllOf(HasSubstr("corrupt: "), HasSubstr(kLabels),
                    HasSubstr("count: 2 labels for the 3 images of "), HasSubstr(kImages)));
}

TEST_F(Idx, ImagesOfTrainAndTestMustHaveOneShape) {
  write("t10k-images-idx3-ubyte", images(2, 3, 2));
  EXPECT_THAT(error(), AllOf(HasSubstr("corrupt: "),
                             HasSubstr("images of t10k are 3x2x1, those of train 2x3x1")));
}

TEST_F(Idx, AnEmptySetIsRefused) {
  write(kImages, images(0, 2, 3));
  write(kLabels, labels({}));
  EXPECT_THAT(error(), AllOf(HasSubstr("corrupt: "), HasSubstr("0x2x3: no pixels")));
}

// Nothing of these sizes may be allocated: the address sanitizer aborts a test that tries.
TEST_F(Idx, SizesThatTheFileCannotHoldAreRefusedBeforeMemoryIsTaken) {
  const std::uint32_t most = 0xffffffff;
  const Bytes magic = big_endian(0x803);
  write(kImages, magic + big_endian(most) + big_endian(28) + big_endian(28) + "pixels");
  EXPECT_THAT(error(), AllOf(HasSubstr("corrupt: "), HasSubstr("size: header and 4294967295x28x28"),
                             HasSubstr("the file has 22")));
  write(kImages, compressed(magic + big_endian(most) + big_endian(28) + big_endian(28) + "pixels"));
  EXPECT_THAT(error(),
              AllOf(HasSubstr("corrupt: "), HasSubstr("size: "), HasSubstr(" compressed")));
  write(kImages, magic + big_endian(most) + big_endian(most) + big_endian(most) + "pixels");
  EXPECT_THAT(error(),
              AllOf(HasSubstr("corrupt: "), HasSubstr("more elements than 63 bits count")));
  write(kImages, magic + big_endian(0x80000000) + big_endian(2) + big_endian(0) + "pixels");
  EXPECT_THAT(error(), HasSubstr("corrupt: "));
}

TEST_F(Idx, ABombIsInflatedNoFurtherThanItsHeaderSays) {
  write(kImages, compressed(images(3, 2, 3) + Bytes(8 << 20, '\0')));
  EXPECT_THAT(error(), HasSubstr("bytes trail after the 18 that the header announces"));
}

TEST(IdxFolder, ARealOneIsRead) {
  const char* folder = std::getenv("LOCKSTEP_MNIST");
  if (folder == nullptr) GTEST_SKIP() << "LOCKSTEP_MNIST names no folder with MNIST files";
  const Sets sets = idx(folder);
  EXPECT_GE(sets.train->size(), 1000u);
  EXPECT_EQ(sets.train->input_shape(), (Shape{28, 28, 1}));
  EXPECT_EQ(sets.train->classes(), 10u);
  std::vector<float> input(784), target(1);
  std::vector<int> seen(10);
  double sum = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    sets.train->read(i, input, target);
    ++seen.at(std::size_t(target[0]));
    for (const float v : input) sum += double(v);
  }
  for (const int times : seen) EXPECT_GT(times, 50);
  EXPECT_NEAR(sum / (1000 * 784), -0.74, 0.05);  // mostly black
}

}  // namespace idx_test
}  // namespace lockstep::engine::data
