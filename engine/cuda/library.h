// SPDX-License-Identifier: MIT
// A shared library that is looked for when the program runs, so that the program starts without it.
// Its functions stay for the rest of the process, even after this is gone: such libraries have
// threads and handlers of their own. Any thread. Opening reads a file of up to hundreds of
// megabytes; asking for a symbol costs a microsecond. Errors: Error(kUnavailable) in one line.
#pragma once
#include <string>
#include <vector>

namespace lockstep::engine::cuda {

struct LibrarySearch {
  std::vector<std::string> names;    // "libcuda.so.1"; the first that opens is taken
  std::vector<std::string> folders;  // looked into where the system's own search finds no name
  std::string help;                  // what to do where there is none: "install ..."
};

class Library {
 public:
  explicit Library(const LibrarySearch& search);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  const std::string& name() const { return name_; }  // the name, or path, that was opened
  void* symbol(const char* name) const;              // throws where the library has none

 private:
  std::string name_;
  std::string help_;
  void* handle_ = nullptr;
};

// Sets a pointer to a function to the library's one of that name.
template <class Function>
void take(const Library& library, Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(library.symbol(name));
}

}  // namespace lockstep::engine::cuda
