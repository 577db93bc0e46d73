// SPDX-License-Identifier: MIT
// The safetensors file format (github.com/huggingface/safetensors): 8 bytes little-endian header
// length, a JSON header padded with spaces to a multiple of 8, then the tensors' bytes, row-major,
// little-endian, without holes. Element types: F32 F64 I32 I64.
//
// A reader trusts nothing: every length, offset and shape is compared with the size of the file
// before memory is taken, so that a bad file costs little. Errors: Error(kCorrupt) with file,
// tensor, reason. Functions of their arguments only: any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "engine/checkpoint/storage.h"
#include "engine/tensor/tensor.h"

namespace lockstep::engine {

// What a file's header says, checked.
struct Safetensors {
  // Bytes [begin, end) of the file.
  struct Entry {
    DType dtype = DType::kFloat32;
    Shape shape;
    std::uint64_t begin = 0, end = 0;
  };
  std::map<std::string, Entry, std::less<>> tensors;
  std::map<std::string, std::string, std::less<>> metadata;
  std::uint64_t bytes = 0;  // of the file
};

// Limits of what is read: the format's own for the header; ours for tensors in one file.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::size_t kMaxTensors = 100'000;

// Reads the header only, in small blocks: memory is what the entries need.
Safetensors read_safetensors(Storage& storage, const std::string& path);

struct TensorSource {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
  const std::byte* data = nullptr;  // shape.elements() of them; borrowed
};

// Length and CRC-32 (zlib's) of what was written.
struct FileSum {
  std::uint64_t bytes = 0;
  std::uint32_t crc = 0;
};

// Writes a whole file front to back; syncs nothing. Elements of 8 bytes come first, so that all are
// aligned. Throws Error(kInvalid) for a name that is given twice or is not UTF-8.
FileSum write_safetensors(StorageFile& file, std::span<const TensorSource> tensors,
                          const std::map<std::string, std::string>& metadata);

// A name from a file as it may stand in a message: quoted, ASCII, at most 80 characters.
std::string in_quotes(std::string_view name);

}  // namespace lockstep::engine
