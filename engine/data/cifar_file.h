// SPDX-License-Identifier: MIT
// One file of CIFAR-10's binary version (Krizhevsky 2009): records of a label's byte and 3072 bytes
// of pixels, the red ones of 32x32, the green, the blue; nothing else.
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
inline constexpr std::uint64_t kCifarRecords = 10'000;         // of each file, where it is whole

struct CifarFile {
  std::vector<std::uint8_t> pixels;  // height x width x channels, image behind image
  std::vector<std::uint8_t> labels;  // below kCifarClasses
};

// Appends what a whole file holds to `content`, so many records. Its size is looked at before
// memory is taken. Throws Error(kIo) for what the system refuses, Error(kCorrupt) naming file and
// field.
std::uint64_t read_cifar_file(const std::filesystem::path& path, CifarFile& content);

// The folder itself, or its cifar-10-batches-bin: where one of CIFAR-10's files lies; an empty path
// when there is none.
std::filesystem::path find_cifar10(const std::filesystem::path& folder);

}  // namespace lockstep::engine::data
