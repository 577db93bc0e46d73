// SPDX-License-Identifier: MIT
// A plain file in memory, with a path under which this process can open it: ten thousand contents
// one after the other, and no disk that must keep up.
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
