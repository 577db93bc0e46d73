// SPDX-License-Identifier: MIT
#include "engine/data/cifar_file.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/plain_file.h"
#include "engine/data/near_miss.h"

namespace lockstep::engine::data {

std::uint64_t read_cifar_file(const std::filesystem::path& path, CifarFile& content) {
  const std::string name = path.string();
  const PlainFile file(name);
  if (file.error() == ENOENT) fail(Code::kIo, "data: {} is missing", name);
  if (!file.fault().empty()) fail(Code::kIo, "data: {} {}", name, file.fault());
  const std::uint64_t bytes = file.bytes();
  const auto read = [&](std::span<char> to, std::uint64_t offset) {
    try {
      return file.read(to, offset);
    } catch (const std::system_error& error) {
      fail(Code::kIo, "data: {} cannot be read: {}", name, error.code().message());
    }
  };
  if (bytes == 0 || bytes % kCifarRecord != 0) {
    std::string first(32, '\0');
    first.resize(read(first, 0));
    refuse_known_kind(name, first);
    fail(Code::kCorrupt, "data: {}: size: {} bytes, should be records of {} bytes each", name,
         bytes, kCifarRecord);
  }
  const std::uint64_t count = bytes / kCifarRecord;
  const std::size_t before = content.labels.size();
  try {
    content.labels.resize(before + count);
    content.pixels.resize((before + count) * kCifarPixels);
  } catch (const std::bad_alloc&) {
    fail(Code::kIo, "data: {}: {} bytes of memory are not to be had", name, bytes);
  }
  constexpr std::uint64_t kAtOnce = 64;  // records
  std::vector<char> block(kAtOnce * kCifarRecord);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i % kAtOnce == 0) {
      const auto some = std::span(block).first(std::min(kAtOnce, count - i) * kCifarRecord);
      if (read(some, i * kCifarRecord) < some.size())
        fail(Code::kIo, "data: {}: has become shorter than its {} records", name, count);
    }
    const auto* record =
        reinterpret_cast<const std::uint8_t*>(block.data()) + i % kAtOnce * kCifarRecord;
    if (record[0] >= kCifarClasses) {
      fail(Code::kCorrupt, "data: {}: label {} of example {}: should be below {}", name, record[0],
           i, kCifarClasses);
    }
    content.labels[before + i] = record[0];
    // Converts planes of channels to channels of pixels.
    std::uint8_t* const image = content.pixels.data() + (before + i) * kCifarPixels;
    constexpr std::size_t kPlane = kCifarSide * kCifarSide;
    for (std::size_t c = 0; c < kCifarChannels; ++c) {
      for (std::size_t p = 0; p < kPlane; ++p) {
        image[p * kCifarChannels + c] = record[1 + c * kPlane + p];
      }
    }
  }
  return count;
}

std::filesystem::path find_cifar10(const std::filesystem::path& folder) {
  std::error_code error;
  for (const auto& place : {folder, folder / "cifar-10-batches-bin"}) {
    for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                             "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"}) {
      if (std::filesystem::exists(place / name, error)) return place;
    }
  }
  return {};
}

}  // namespace lockstep::engine::data
