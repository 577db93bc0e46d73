// SPDX-License-Identifier: MIT
// A result file that is whole or absent: it is written beside its name, as NAME.partial, and
// renamed when it is done. What stood there before stays until then. Symbolic links are followed.
// That it can be written is known at once, before long work begins. One thread at a time.
#pragma once
#include <string>
#include <string_view>

namespace lockstep::engine {

class WholeFile {
 public:
  // Throws Error(kIo) where `path` cannot be written, or is a folder.
  explicit WholeFile(const std::string& path);
  ~WholeFile();  // what was not committed is removed
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;
  // All of the text, once. Throws Error(kIo); then nothing is left.
  void commit(std::string_view text);

 private:
  std::string path_, partial_;
  int file_ = -1;
};

}  // namespace lockstep::engine
