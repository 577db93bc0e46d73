// SPDX-License-Identifier: MIT
// One file of CIFAR-10's binary version (Krizhevsky 2009): records of one label byte and 3072 pixel
// bytes (the red, green and blue planes of 32x32), and nothing else.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::engine::data {

inline constexpr std::size_t kCifarSide = 32, kCifarChannels = 3, kCifarClasses = 10;
inline constexpr std::size_t kCifarPixels = kCifarSide * kCifarSide * kCifarChannels;
inline constexpr std::size_t kCifarRecord = 1 + kCifarPixels;  // bytes
inline constexpr std::uint64_t kCifarRecords = 10'000;         // records of a complete file

struct CifarFile {
  std::vector<std::uint8_t> pixels;  // image after image, height x width x channels
  std::vector<std::uint8_t> labels;  // below kCifarClasses
};

// Appends the records of a whole file to `content` and returns their number. Checks the file's size
// before it allocates. Throws Error(kIo) if the system refuses, and Error(kCorrupt) that names file
// and field.
std::uint64_t read_cifar_file(const std::filesystem::path& path, CifarFile& content);

// Returns the folder, or its subfolder cifar-10-batches-bin, if it has one of CIFAR-10's files;
// else an empty path.
std::filesystem::path find_cifar10(const std::filesystem::path& folder);

}  // namespace lockstep::engine::data
