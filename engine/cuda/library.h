// SPDX-License-Identifier: MIT
// A shared library that is loaded at run time, so that the program starts without it. Its functions
// remain valid for the rest of the process, even after this object is destroyed: such libraries
// have threads and handlers. Thread-safe. Loading reads a file of up to hundreds of megabytes;
// looking up a symbol costs a microsecond. Throws Error(kUnavailable) with one line.
#pragma once
#include <string>
#include <vector>

namespace lockstep::engine::cuda {

struct LibrarySearch {
  std::vector<std::string> names;    // "libcuda.so.1"; the first that opens is used
  std::vector<std::string> folders;  // searched if the system's search fails
  std::string help;                  // advice if it is missing: "install ..."
};

class Library {
 public:
  explicit Library(const LibrarySearch& search);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  const std::string& name() const { return name_; }  // the name or path that was opened
  void* symbol(const char* name) const;              // throws if there is none

 private:
  std::string name_;
  std::string help_;
  void* handle_ = nullptr;
};

// Sets a function pointer to the library's symbol `name`.
template <class Function>
void take(const Library& library, Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(library.symbol(name));
}

}  // namespace lockstep::engine::cuda
