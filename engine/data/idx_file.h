// SPDX-License-Identifier: MIT
// One file in the IDX format of the MNIST family (LeCun): a magic number, which holds the element
// type and the number of extents, then the extents, all 32-bit big-endian, then the bytes. It may
// be compressed by gzip, which its first bytes say, not its name.
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep::engine::data {

struct IdxFile {
  std::vector<std::uint32_t> extents;  // as many as the magic number says, slowest first
  std::vector<std::uint8_t> bytes;     // as many as the extents multiplied
};

// Reads a whole file of unsigned bytes with `extents` extents. What the header announces is checked
// against the size of the file before memory is taken, and elements that need much more memory than
// the file has bytes are counted first: so a wrong file takes little. No more is inflated than it
// announces. Throws Error(kIo) for what the system refuses, Error(kCorrupt) naming file and field
// for what is wrong.
IdxFile read_idx_file(const std::filesystem::path& path, int extents);

}  // namespace lockstep::engine::data
