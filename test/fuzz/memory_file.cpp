// SPDX-License-Identifier: MIT
#include "test/fuzz/memory_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>

namespace lockstep::test {

MemoryFile::MemoryFile() : file_(memfd_create("lockstep fuzz", MFD_CLOEXEC)) {
  if (file_ < 0) throw std::runtime_error("no file in memory");
}

MemoryFile::~MemoryFile() {
  ::close(file_);
}

std::string MemoryFile::path() const {
  return "/proc/self/fd/" + std::to_string(file_);
}

void MemoryFile::set(const std::string& content) {
  const bool done = ::ftruncate(file_, 0) == 0 &&
                    ::pwrite(file_, content.data(), content.size(), 0) == ssize_t(content.size());
  if (!done) throw std::runtime_error("a file in memory cannot be written");
}

}  // namespace lockstep::test
