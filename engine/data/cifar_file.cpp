// SPDX-License-Identifier: MIT
#include "engine/data/cifar_file.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <new>
#include <system_error>

#include "engine/base/error.h"
#include "engine/data/near_miss.h"

namespace lockstep::engine::data {

std::uint64_t read_cifar_file(const std::filesystem::path& path, CifarFile& content) {
  const std::string name = path.string();
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    fail(Code::kIo, "data: {} is missing", name);
  }
  if (!std::filesystem::is_regular_file(status)) fail(Code::kIo, "data: {} is not a file", name);
  const std::uint64_t bytes = std::filesystem::file_size(path, error);
  if (error) fail(Code::kIo, "data: {}: {}", name, error.message());
  if (bytes == 0 || bytes % kCifarRecord != 0) {
    std::string first(32, '\0');
    std::ifstream(path, std::ios::binary).read(first.data(), std::streamsize(first.size()));
    refuse_known_kind(name, first);
    fail(Code::kCorrupt, "data: {}: size: {} bytes, should be records of {} bytes each", name,
         bytes, kCifarRecord);
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    fail(Code::kIo, "data: {} cannot be opened: {}", name,
         errno ? std::strerror(errno) : "no memory");
  }
  const std::uint64_t count = bytes / kCifarRecord;
  const std::size_t before = content.labels.size();
  try {
    content.labels.resize(before + count);
    content.pixels.resize((before + count) * kCifarPixels);
  } catch (const std::bad_alloc&) {
    fail(Code::kIo, "data: {}: {} bytes of memory are not to be had", name, bytes);
  }
  std::array<std::uint8_t, kCifarRecord> record;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (!file.read(reinterpret_cast<char*>(record.data()), kCifarRecord)) {
      fail(Code::kIo, "data: {}: ends after {} of {} records, or cannot be read", name, i, count);
    }
    if (record[0] >= kCifarClasses) {
      fail(Code::kCorrupt, "data: {}: label {} of example {}: should be below {}", name, record[0],
           i, kCifarClasses);
    }
    content.labels[before + i] = record[0];
    // Planes of channels become channels of pixels.
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
