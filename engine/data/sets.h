// SPDX-License-Identifier: MIT
// The data sets there are. Each owns what it read; reading an example copies it. Sizes read from
// files are checked before memory is taken.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/data/dataset.h"

namespace lockstep::engine::data {

// Train and test belong together; `test` may be null.
struct Sets {
  std::shared_ptr<const Dataset> train, test;  // shared: a trainer may outlive its maker's scope
  std::string test_files = {};                 // that a folder has where it has test data
  float around = 0;                            // what lies around an image: black, or the mean
  std::vector<std::string> warnings = {};      // of what can be read and may not be meant
};

// The MNIST family: a folder with train-images-idx3-ubyte, train-labels-idx1-ubyte and, if present,
// t10k-*, each plain or with .gz, with a dot before idx, or in a folder of its own name. Pixels
// become (v / 255 - 0.5) * 2. Throws Error(kIo) naming the file that is missing, Error(kCorrupt)
// naming file and field. Labels must be below `classes`; 0: the training labels say how many there
// are, at least 10.
Sets idx(const std::string& folder, std::size_t classes = 0);

struct DigitsOptions {
  std::uint64_t train = 8000, test = 2000;
  std::uint64_t seed = 1;
};
// Digits drawn by the program, 28x28x1, the numbers of example i a function of (seed, i). Hard
// enough that a linear classifier stays below 0.93. No file.
Sets generated_digits(DigitsOptions options = {});

// CIFAR-10 in its binary version (Krizhevsky 2009): a folder with data_batch_1.bin to
// data_batch_5.bin and, if present, test_batch.bin, or with a folder cifar-10-batches-bin of them.
// 32x32x3, 10 classes. Pixels become (v / 255 - mean) / deviation of their channel over the
// training images: 0.4914, 0.4822, 0.4465 and 0.2470, 0.2435, 0.2616. Throws Error(kIo) naming the
// file that is missing, Error(kCorrupt) naming file and field; warns of files of fewer than 10,000
// records.
Sets cifar10(const std::string& folder);

struct ImagesOptions {
  std::size_t height = 32, width = 32, classes = 10;
  std::uint64_t train = 8000, test = 2000;
  std::uint64_t seed = 1;
};
// Colour images painted by the program, height x width x 3, from -1 to 1: of each class two
// colours, stripes and a spot, then noise. Example i is a function of (seed, i), painted when it is
// read: about 10 ns a pixel, no memory, no file.
Sets generated_images(ImagesOptions options = {});

struct ClicksOptions {
  std::uint64_t train = 100'000, test = 10'000;
  std::uint64_t seed = 1;
  std::size_t buckets = 38462;  // ids of each field: 0 .. buckets - 1; at most 2^24
};
// Clicks in the form of Criteo's data: 13 numbers, then 26 ids, a few of them in most examples;
// classes 0 and 1. A hidden linear model of the numbers and ids says how likely a click is. Example
// i is a function of (seed, i), drawn when it is read: about 3 us, no memory, no file.
Sets generated_clicks(ClicksOptions options = {});

// Files in Criteo's text format, for training and, where named, for tests: lines of a label, 13
// whole numbers and 26 hexadecimal words, with tabs between them (criteo_line.h), plain or
// compressed by gzip. The same form as generated clicks. The whole file is looked at once, about a
// microsecond a line; then examples are read from the file, and 8 bytes a line stay in memory. A
// compressed one is inflated into a temporary file. Throws Error(kIo) for what the system refuses,
// Error(kCorrupt) naming file, line and field.
Sets criteo(const std::string& file, std::size_t buckets = 38462, const std::string& test = {});

// `count` images of random numbers and random classes, kept in memory: for measurements.
Sets random_images(Shape input, std::size_t classes, std::uint64_t count, std::uint64_t seed);

}  // namespace lockstep::engine::data
