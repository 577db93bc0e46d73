// SPDX-License-Identifier: MIT
// A result file that is whole or absent: it is written as NAME.partial and renamed when it is
// complete. A previous file stays until then. Symbolic links are followed. The constructor fails if
// the file cannot be written, before long work begins. Used by one thread at a time.
#pragma once
#include <string>
#include <string_view>

namespace lockstep::engine {

class WholeFile {
 public:
  // Throws Error(kIo) if `path` cannot be written or is a folder.
  explicit WholeFile(const std::string& path);
  ~WholeFile();  // removes what was not committed
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;
  // Writes the whole text; call it once. Throws Error(kIo), and then nothing is left.
  void commit(std::string_view text);

 private:
  std::string path_, partial_;
  int file_ = -1;
};

}  // namespace lockstep::engine
