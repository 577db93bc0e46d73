// SPDX-License-Identifier: MIT
// Opens plain files that others made. Pipes, devices, sockets and folders are refused, and opening
// never waits, so that no reader waits for ever or reads without an end.
#pragma once
#include <fcntl.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep::engine {

class PlainFile {
 public:
  // Does not throw; `fault` says why a file is not open. `flags`: those of open(2).
  explicit PlainFile(const std::string& path, int flags = O_RDONLY);
  PlainFile(PlainFile&& other) noexcept;
  PlainFile& operator=(PlainFile&&) = delete;
  ~PlainFile();

  // A verb and its object that follow the path in a message: "is not a file, but a named pipe",
  // "cannot be opened: Permission denied". Empty where the file is open.
  const std::string& fault() const { return fault_; }
  // The system's number for why it is not open; 0 where it is of another kind, or open.
  int error() const { return error_; }
  int number() const { return number_; }
  std::uint64_t bytes() const { return bytes_; }  // when it was opened; 0 for files of /proc
  int release();                                  // the caller closes it

  // Returns how many bytes were read: fewer than asked for only at the file's end. Throws
  // std::system_error.
  std::size_t read(std::span<char> to, std::uint64_t offset) const;

 private:
  int number_ = -1, error_ = 0;
  std::uint64_t bytes_ = 0;
  std::string fault_;
};

// Returns the content of a file of at most `most` bytes. `name`: the file's in errors, "the TLS key
// a/key.pem". Throws Error(kIo), and Error(kInvalid) for a longer file.
std::string read_text(const std::string& path, const std::string& name, std::size_t most);

}  // namespace lockstep::engine
