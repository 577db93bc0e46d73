// SPDX-License-Identifier: MIT
#include "engine/cuda/library.h"

#include <dlfcn.h>

#include "engine/base/error.h"

namespace lockstep::engine::cuda {
namespace {

// Returns the dynamic linker's message about the previous call as one line.
std::string linker_words() {
  const char* words = ::dlerror();
  std::string text = words == nullptr ? "no reason given" : words;
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text;
}

}  // namespace

Library::Library(const LibrarySearch& search) : help_(search.help) {
  invariant(!search.names.empty(), "a library without a name");
  std::vector<std::string> paths = search.names;
  for (const std::string& folder : search.folders) {
    for (const std::string& name : search.names)
      paths.push_back(fmt::format("{}/{}", folder, name));
  }
  // The most helpful reason is the last one about an existing file. For others the linker only says
  // that they are missing.
  std::string reason;
  for (const std::string& path : paths) {
    handle_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle_ != nullptr) {
      name_ = path;
      return;
    }
    const std::string words = linker_words();
    const bool missing = words.find("No such file") != std::string::npos;
    if (reason.empty() || !missing) reason = words;
  }
  fail(Code::kUnavailable, "{} could not be opened ({}): {}", search.names.front(), reason, help_);
}

Library::~Library() {
  ::dlclose(handle_);
}

void* Library::symbol(const char* name) const {
  void* const address = ::dlsym(handle_, name);
  if (address == nullptr) {
    fail(Code::kUnavailable, "{} has no {}, so it is too old: {}", name_, name, help_);
  }
  return address;
}

}  // namespace lockstep::engine::cuda
