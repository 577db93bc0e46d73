// SPDX-License-Identifier: MIT
// The built-in data sets. Each owns what it read; reading an example copies it. Sizes from files
// are checked before allocation.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/data/dataset.h"

namespace lockstep::engine::data {

// Holds the training and the test set of the same data; `test` may be null.
struct Sets {
  std::shared_ptr<const Dataset> train, test;  // shared: a trainer may outlive its maker's scope
  std::string test_files = {};                 // file names of the folder's test data
  float around = 0;                            // value around an image: black, or the mean
  std::vector<std::string> warnings = {};      // about input that may be unintended
};

// Reads the MNIST family: a folder with train-images-idx3-ubyte, train-labels-idx1-ubyte and, if
// present, t10k-*. Each may be plain or with .gz, with a dot before idx, or in a folder of its own
// name. Pixels become (v / 255 - 0.5) * 2. Labels must be below `classes`; 0: the training labels
// determine it, at least 10. Throws Error(kIo) that names a missing file, and Error(kCorrupt) that
// names file and field.
Sets idx(const std::string& folder, std::size_t classes = 0);

struct DigitsOptions {
  std::uint64_t train = 8000, test = 2000;
  std::uint64_t seed = 1;
};
// Returns digits drawn by the program, 28x28x1; example i is a function of (seed, i). They are so
// hard that a linear classifier stays below 0.93. Needs no file.
Sets generated_digits(DigitsOptions options = {});

// Reads CIFAR-10 in its binary version (Krizhevsky 2009): a folder with data_batch_1.bin to
// data_batch_5.bin and, if present, test_batch.bin, or with a folder cifar-10-batches-bin of them.
// 32x32x3, 10 classes. Pixels become (v / 255 - mean) / deviation of their channel over the
// training images: 0.4914, 0.4822, 0.4465 and 0.2470, 0.2435, 0.2616. Throws Error(kIo) that names
// a missing file, and Error(kCorrupt) that names file and field. Warns about files of fewer than
// 10,000 records.
Sets cifar10(const std::string& folder);

struct ImagesOptions {
  std::size_t height = 32, width = 32, classes = 10;
  std::uint64_t train = 8000, test = 2000;
  std::uint64_t seed = 1;
};
// Returns color images painted by the program, height x width x 3, from -1 to 1: two colors per
// class, stripes and a spot, then noise. Example i is a function of (seed, i), painted on each read
// in about 10 ns per pixel. Needs no memory and no file.
Sets generated_images(ImagesOptions options = {});

struct ClicksOptions {
  std::uint64_t train = 100'000, test = 10'000;
  std::uint64_t seed = 1;
  std::size_t buckets = 38462;  // number of ids per field; at most 2^24
};
// Returns clicks in the format of Criteo's data: 13 numbers, then 26 ids, a few of which are in
// most examples; classes 0 and 1. A hidden linear model of the numbers and ids gives the
// probability of a click. Example i is a function of (seed, i), drawn on each read in about 3 us.
// Needs no memory and no file.
Sets generated_clicks(ClicksOptions options = {});

// Reads files in Criteo's text format for training and, if named, for tests. Their lines have a
// label, 13 whole numbers and 26 hexadecimal words, separated by tabs (criteo_line.h); gzip
// compression is allowed. Examples have the format of generated clicks. One pass checks the whole
// file, at about a microsecond per line. Then examples are read from the file, and 8 bytes per line
// stay in memory. A compressed file is inflated into a temporary file. Throws Error(kIo) if the
// system refuses, and Error(kCorrupt) that names file, line and field.
Sets criteo(const std::string& file, std::size_t buckets = 38462, const std::string& test = {});

// Returns `count` images of random numbers and random classes, kept in memory, for measurements.
Sets random_images(Shape input, std::size_t classes, std::uint64_t count, std::uint64_t seed);

}  // namespace lockstep::engine::data
