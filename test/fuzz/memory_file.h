// SPDX-License-Identifier: MIT
// A regular file in memory that this process can open by path. Ten thousand contents can follow
// each other without a slow disk.
#pragma once
#include <string>

namespace lockstep::test {

class MemoryFile {
 public:
  MemoryFile();
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const;
  void set(const std::string& content);

 private:
  int file_;
};

}  // namespace lockstep::test
