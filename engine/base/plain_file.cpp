// SPDX-License-Identifier: MIT
#include "engine/base/plain_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::engine {
namespace {

const char* kind_name(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

PlainFile::PlainFile(const std::string& path, int flags) {
  // Opening some devices has side effects, so the kind is checked before opening, too.
  struct stat status {};
  const bool plain = ::stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode);
  if (plain) {
    number_ = ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644);
    if (number_ < 0 || ::fstat(number_, &status) != 0) {
      error_ = errno;
      fault_ = "cannot be opened: " + std::generic_category().message(error_);
      return;
    }
    bytes_ = std::uint64_t(status.st_size);
    if (S_ISREG(status.st_mode)) return;
    ::close(release());
  }
  fault_ = fmt::format("is not a file, but {}", kind_name(status.st_mode));
}

PlainFile::PlainFile(PlainFile&& other) noexcept
    : number_(other.release()),
      error_(other.error_),
      bytes_(other.bytes_),
      fault_(std::move(other.fault_)) {}

PlainFile::~PlainFile() {
  if (number_ >= 0) ::close(number_);
}

int PlainFile::release() {
  return std::exchange(number_, -1);
}

std::size_t PlainFile::read(std::span<char> to, std::uint64_t offset) const {
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t got = ::pread(number_, to.data() + done, to.size() - done, off_t(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw std::system_error(errno, std::generic_category());
    if (got == 0) break;
    done += std::size_t(got);
  }
  return done;
}

std::string read_text(const std::string& path, const std::string& name, std::size_t most) {
  constexpr std::size_t kAtOnce = std::size_t(64) << 10;
  const PlainFile file(path);
  if (!file.fault().empty()) fail(Code::kIo, "{} {}", name, file.fault());
  std::string text;
  // The reported size is not relied on, because files of /proc report 0.
  for (std::size_t done = 0; done <= most && file.bytes() <= most;) {
    text.resize(std::min(done + kAtOnce, most + 1));
    try {
      const std::size_t got = file.read(std::span(text).subspan(done), done);
      done += got;
      text.resize(done);
      if (got == 0) return text;
    } catch (const std::system_error& error) {
      fail(Code::kIo, "{} cannot be read: {}", name, error.code().message());
    }
  }
  fail(Code::kInvalid, "{} is longer than the {} bytes that are read", name, most);
}

}  // namespace lockstep::engine
