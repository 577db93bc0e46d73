// SPDX-License-Identifier: MIT
// Opens regular files of unknown origin. Pipes, devices, sockets and folders are refused, and
// opening never blocks, so no reader hangs or reads without end.
#pragma once
#include <fcntl.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep::engine {

class PlainFile {
 public:
  // Does not throw; `fault` says why the file is not open. `flags`: those of open(2).
  explicit PlainFile(const std::string& path, int flags = O_RDONLY);
  PlainFile(PlainFile&& other) noexcept;
  PlainFile& operator=(PlainFile&&) = delete;
  ~PlainFile();

  // Returns a predicate that follows the path in a message: "is not a file, but a pipe", "cannot be
  // opened: Permission denied". Empty if the file is open.
  const std::string& fault() const { return fault_; }
  // Returns the errno of the failed open; 0 if the file is open or not a regular file.
  int error() const { return error_; }
  int number() const { return number_; }
  std::uint64_t bytes() const { return bytes_; }  // size when opened; 0 for files of /proc
  int release();                                  // the caller closes it

  // Returns the bytes read, fewer than requested only at the end of the file. Throws
  // std::system_error.
  std::size_t read(std::span<char> to, std::uint64_t offset) const;

 private:
  int number_ = -1, error_ = 0;
  std::uint64_t bytes_ = 0;
  std::string fault_;
};

// Returns the content of a file of at most `most` bytes. `name`: its name in errors, e.g. "the TLS
// key a/key.pem". Throws Error(kIo), or Error(kInvalid) for a longer file.
std::string read_text(const std::string& path, const std::string& name, std::size_t most);

}  // namespace lockstep::engine
