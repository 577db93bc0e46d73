// SPDX-License-Identifier: MIT
// A file that may be compressed by gzip, which its first bytes say, not its name. Read once from
// the beginning, or again after `rewind`. One thread. Throws Error(kIo) for what the system
// refuses, Error(kCorrupt) where gzip's checksum or form is wrong.
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
  // Fills `out` as far as the content goes; returns the number of bytes.
  std::size_t read(std::span<std::uint8_t> out);
  // Whether a compressed file ended in the middle. After a read that returned less than it could.
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
