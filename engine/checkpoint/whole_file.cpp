// SPDX-License-Identifier: MIT
#include "engine/checkpoint/whole_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "engine/base/error.h"
#include "engine/base/plain_file.h"

namespace lockstep::engine {
namespace {

[[noreturn]] void cannot_write(const std::string& path, int reason) {
  fail(Code::kIo, "cannot write {}: {}", path, std::generic_category().message(reason));
}

// Returns the target of symbolic links, whether it exists or not.
std::string behind_links(const std::string& path) {
  constexpr int kMostLinks = 40;  // the kernel's limit
  std::filesystem::path at = path;
  std::error_code error;
  for (int link = 0; std::filesystem::is_symlink(at, error); ++link) {
    if (link == kMostLinks) cannot_write(path, ELOOP);
    at = at.parent_path() / std::filesystem::read_symlink(at, error);
    if (error) cannot_write(path, error.value());
  }
  return at.string();
}

}  // namespace

WholeFile::WholeFile(const std::string& path)
    : path_(behind_links(path)), partial_(path_ + ".partial") {
  std::error_code error;
  const auto kind = std::filesystem::status(path_, error).type();
  if (kind != std::filesystem::file_type::regular &&
      kind != std::filesystem::file_type::not_found) {
    fail(Code::kIo, "cannot write {}: it is not a file; name one, or one that is still to be made",
         path);
  }
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  if (!folder.empty() && !std::filesystem::exists(folder, error))
    fail(Code::kIo, "cannot write {}: there is no folder {}", path, folder.string());
  PlainFile partial(partial_, O_WRONLY | O_CREAT | O_TRUNC);
  if (!partial.fault().empty())
    fail(Code::kIo, "cannot write {}: {} {}", path, partial_, partial.fault());
  file_ = partial.release();
}

WholeFile::~WholeFile() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(partial_.c_str());
}

void WholeFile::commit(std::string_view text) {
  invariant(file_ >= 0, "a file is committed once");
  while (!text.empty()) {
    const ssize_t written = ::write(file_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) cannot_write(path_, written < 0 ? errno : EIO);
    text.remove_prefix(std::size_t(written));
  }
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) cannot_write(path_, errno);
  ::close(file_);
  file_ = -1;
}

}  // namespace lockstep::engine
