// SPDX-License-Identifier: MIT
#include "engine/checkpoint/folder_claim.h"

#include <unistd.h>

#include <array>
#include <exception>

#include "engine/base/error.h"

namespace lockstep::engine {
namespace {

// Returns the text that other processes read, on any host.
std::string this_process() {
  std::array<char, 256> host{};
  const bool named = ::gethostname(host.data(), host.size() - 1) == 0 && host[0] != '\0';
  return fmt::format("pid {} on host {}", ::getpid(), named ? host.data() : "unknown");
}

}  // namespace

FolderClaim::FolderClaim(Storage& storage, const std::string& folder, const Log& log)
    : storage_(storage) {
  const std::string path = folder + "/lock";
  std::string holder;
  try {
    made_ = storage.make_folder(folder);
    lock_ = storage.lock(path, this_process(), holder);
  } catch (const Error& error) {
    wrong_ = error.what();
    return;
  }
  if (!lock_) {
    fail(Code::kIo,
         "{} is in use: {} trains into it; wait until it has ended, or give another folder for "
         "checkpoints",
         folder, holder.empty() ? "another process" : holder);
  }
  if (!lock_->works()) {
    log.warning("the file system of {} has no locks: a second run into it would not be noticed",
                folder);
  }
}

FolderClaim::~FolderClaim() {
  lock_.reset();
  try {
    while (!made_.empty() && storage_.remove_folder(made_.back())) made_.pop_back();
  } catch (const std::exception&) {
    // An empty folder stays, because the error that led here is the one to report.
  }
}

void FolderClaim::require_held() const {
  if (lock_) return;
  fail(Code::kIo,
       "no checkpoint could be written: {}; give a folder that can be written, on a disk with room",
       wrong_);
}

}  // namespace lockstep::engine
