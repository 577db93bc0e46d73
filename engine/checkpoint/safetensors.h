// SPDX-License-Identifier: MIT
// The safetensors file format (github.com/huggingface/safetensors): an 8-byte little-endian header
// length, a JSON header padded with spaces to a multiple of 8, then the tensors' bytes, row-major,
// little-endian, without gaps. The header begins with { and maps each name to {"dtype": "F32",
// "shape": [5, 1], "data_offsets": [begin, end]}. Offsets are bytes from the end of the header.
// __metadata__ maps text to text. Element types: F32 F64 I32 I64 F16 BF16.
//
// A reader trusts nothing: it compares every length, offset and shape with the size of the file
// before it allocates, so a bad file costs little. Errors are Error(kCorrupt) with file, tensor and
// reason. Pure functions apart from the files; thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "engine/checkpoint/storage.h"
#include "engine/tensor/tensor.h"

namespace lockstep::engine {

// Holds the checked content of a file's header.
struct Safetensors {
  // Covers bytes [begin, end) of the file.
  struct Entry {
    DType dtype = DType::kFloat32;
    Shape shape;
    std::uint64_t begin = 0, end = 0;
  };
  std::map<std::string, Entry, std::less<>> tensors;
  std::map<std::string, std::string, std::less<>> metadata;
  std::uint64_t bytes = 0;  // size of the file
};

// The limits for reading: the header's is the format's own, the number of tensors is ours.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::size_t kMaxTensors = 100'000;

// Reads only the header, in small blocks, so memory grows only with the entries.
Safetensors read_safetensors(Storage& storage, const std::string& path);

struct TensorSource {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
  const std::byte* data = nullptr;  // shape.elements() elements; borrowed
};

// Counts the bytes written and has their CRC-32 (zlib's).
struct FileSum {
  std::uint64_t bytes = 0;
  std::uint32_t crc = 0;
};

// Writes a whole file front to back, without sync. Larger elements come first, so that all are
// aligned. Throws Error(kInvalid) for a name that occurs twice or is not UTF-8.
FileSum write_safetensors(StorageFile& file, std::span<const TensorSource> tensors,
                          const std::map<std::string, std::string>& metadata);

// Returns a file's name for a message: quoted, ASCII, at most 80 characters.
std::string in_quotes(std::string_view name);

}  // namespace lockstep::engine
