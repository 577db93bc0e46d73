// SPDX-License-Identifier: MIT
// One file in the IDX format of the MNIST family (LeCun): a magic number, which holds the element
// type and the number of extents, then the extents, all 32-bit big-endian, then the bytes. It may
// be compressed by gzip, as its first bytes say, not its name.
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep::engine::data {

struct IdxFile {
  std::vector<std::uint32_t> extents;  // counted by the magic number, slowest first
  std::vector<std::uint8_t> bytes;     // their number: the product of the extents
};

// Reads a whole file of unsigned bytes with `extents` extents. Checks the header against the size
// of the file before it allocates. If the elements need much more memory than the file's size, it
// counts them first, so a wrong file costs little. Inflates no more than the header announces.
// Throws Error(kIo) if the system refuses, and Error(kCorrupt) that names file and field.
IdxFile read_idx_file(const std::filesystem::path& path, int extents);

}  // namespace lockstep::engine::data
