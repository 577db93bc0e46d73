// SPDX-License-Identifier: MIT
// A file that may be compressed by gzip, as its first bytes say, not its name. It is read once from
// the beginning, or again after `rewind`. Single-threaded. Throws Error(kIo) if the system refuses,
// and Error(kCorrupt) if gzip's checksum or format is wrong.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

struct gzFile_s;

namespace lockstep::engine::data {

class GzipFile {
 public:
  // Throws Error(kIo) for anything but a regular file.
  explicit GzipFile(const std::filesystem::path& path);
  std::uint64_t stored() const { return stored_; }  // bytes of the file itself
  bool compressed() const;
  // Fills `out` as far as the content reaches; returns the number of bytes.
  std::size_t read(std::span<std::uint8_t> out);
  // Returns whether a compressed file ended early. Call it after a read that returned fewer bytes
  // than requested.
  bool cut_short() const;
  void rewind();

 private:
  struct Close {
    void operator()(gzFile_s* file) const;
  };
  std::string path_;
  std::uint64_t stored_ = 0;
  std::unique_ptr<gzFile_s, Close> file_;
};

}  // namespace lockstep::engine::data
