// SPDX-License-Identifier: MIT
#include "collectives/memory/mapped_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>

#include "collectives/topology/machine.h"
#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

using engine::Code;
using engine::fail;

constexpr std::size_t kHugePage = std::size_t(2) << 20;
constexpr std::size_t kMostMapped = std::size_t(1) << 52;  // keeps sums of sizes far from overflow

// Returns where the key is. The file holds `bytes` rounded up to pages, then a page with the key.
std::size_t key_offset(std::size_t bytes) {
  return whole_pages(bytes);
}
std::size_t file_bytes(std::size_t bytes) {
  return key_offset(bytes) + kPageBytes;
}

std::string system_reason() {
  return std::strerror(errno);
}

engine::Buffer owner(int file) {
  return engine::Buffer(nullptr, 0, [file] { ::close(file); });
}

// Allocates all pages now. It works in pieces, since an interrupted fallocate gives back what it
// took: a signal costs one piece, not all.
void reserve(int file, std::size_t bytes, const std::string& name) {
  constexpr std::size_t kPiece = std::size_t(256) << 20;
  for (std::size_t at = 0; at < bytes;) {
    const std::size_t piece = std::min(kPiece, bytes - at);
    if (fallocate(file, 0, off_t(at), off_t(piece)) == 0) {
      at += piece;
    } else if (errno == EOPNOTSUPP) {
      return;  // the first touch allocates pages then
    } else if (errno != EINTR) {
      fail(Code::kIo, "no {} bytes of shared memory for {}: {}", bytes, name, system_reason());
    }
  }
}

// Requests huge pages for an empty file. Without the request, systems leave shared memory on small
// pages. The kernel may refuse (before Linux 6.1 always), which only costs speed. It collapses the
// small pages that exist into a huge page and fills in the missing ones. So one of each must exist;
// allocating all of them first would take several times as long.
void take_huge_pages(int file, std::byte* data, std::size_t bytes) {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, which C library headers may lack
  const std::size_t whole = bytes / kHugePage * kHugePage;
  if (reinterpret_cast<std::uintptr_t>(data) % kHugePage != 0 || whole == 0) return;
  for (std::size_t at = 0; at < whole; at += kHugePage)
    if (fallocate(file, 0, off_t(at), off_t(kPageBytes)) != 0)
      return;  // `reserve` reports the error
  madvise(data, whole, kCollapse);
}

// Maps the whole file. A large file is mapped at a multiple of 2 MiB, so that huge pages can serve
// it. For that, a larger address range is taken first, the file is mapped over its aligned part,
// and the rest is released.
engine::Buffer map(int file, std::size_t bytes, const std::string& what) {
  const std::size_t whole = file_bytes(bytes);
  void* at = MAP_FAILED;
  if (bytes < 2 * kHugePage) {
    at = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  } else {
    const std::size_t taken = whole + kHugePage;
    void* space =
        mmap(nullptr, taken, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space != MAP_FAILED) {
      auto* first = static_cast<std::byte*>(space);
      const std::size_t skip =
          (kHugePage - reinterpret_cast<std::uintptr_t>(first) % kHugePage) % kHugePage;
      at = mmap(first + skip, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
      if (at == MAP_FAILED) {
        munmap(first, taken);
      } else {
        if (skip > 0) munmap(first, skip);
        if (skip < kHugePage) munmap(first + skip + whole, kHugePage - skip);
        madvise(at, whole, MADV_HUGEPAGE);  // only a hint
      }
    }
  }
  if (at == MAP_FAILED)
    fail(Code::kIo, "cannot map {} ({} bytes): {}", what, bytes, system_reason());
  return engine::Buffer(static_cast<std::byte*>(at), bytes, [at, whole] { munmap(at, whole); });
}

std::uint64_t random_key() {
  std::uint64_t key = 0;
  while (getrandom(&key, sizeof key, 0) != ssize_t(sizeof key)) {
    if (errno != EINTR) fail(Code::kIo, "no random numbers from the system: {}", system_reason());
  }
  return key;
}

template <class Integer>
const char* parse_part(const char* at, const char* end, char separator, Integer& value, bool& ok) {
  const auto [next, error] = std::from_chars(at, end, value);
  ok = ok && error == std::errc() && value >= 0;
  if (separator == '\0') {
    ok = ok && next == end;
    return next;
  }
  ok = ok && next < end && *next == separator;
  return ok ? next + 1 : end;
}

}  // namespace

std::string to_text(const MappingAddress& a) {
  return fmt::format("{}:{}:{}:{}", a.pid, a.file, a.bytes, a.key);
}

MappingAddress mapping_address(const std::string& text) {
  MappingAddress a;
  bool ok = true;
  const char* const end = text.data() + text.size();
  const char* at = parse_part(text.data(), end, ':', a.pid, ok);
  at = parse_part(at, end, ':', a.file, ok);
  at = parse_part(at, end, ':', a.bytes, ok);
  parse_part(at, end, '\0', a.key, ok);
  engine::require(ok && a.pid > 0, "\"{}\" is no address of shared memory (pid:file:bytes:key)",
                  text);
  return a;
}

MappedMemory::MappedMemory(const std::string& name, std::size_t bytes) {
  // The kernel would rather kill a process than let a too large fallocate fail.
  const std::size_t available = available_memory();
  if (bytes > kMostMapped || file_bytes(bytes) > available) {
    fail(Code::kIo, "no {} bytes of shared memory for {}: {} are available", bytes, name,
         available);
  }
  const int file = memfd_create(name.substr(0, 200).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) fail(Code::kIo, "no shared memory (memfd) for {}: {}", name, system_reason());
  file_ = owner(file);
  if (ftruncate(file, off_t(file_bytes(bytes))) != 0) {
    fail(Code::kIo, "no {} bytes of shared memory for {}: {}", bytes, name, system_reason());
  }
  buffer_ = map(file, bytes, name);
  take_huge_pages(file, buffer_.data(), bytes);
  reserve(file, file_bytes(bytes), name);
  fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);  // nobody can truncate it now
  address_ = {.pid = int(getpid()), .file = file, .bytes = bytes, .key = random_key()};
  std::memcpy(buffer_.data() + key_offset(bytes), &address_.key, sizeof address_.key);
}

void MappedMemory::close_file() {
  file_ = engine::Buffer();
}

engine::Buffer map_peer(const MappingAddress& address) {
  const std::string path = fmt::format("/proc/{}/fd/{}", address.pid, address.file);
  // If the pid belongs to another process now, the file found there must not block or become our
  // terminal. Opening a device may have effects.
  struct stat kind {};
  if (stat(path.c_str(), &kind) == 0 && !S_ISREG(kind.st_mode))
    fail(Code::kIo, "{} is not the memory that process {} told of: no file", path, address.pid);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0)
    fail(Code::kIo, "cannot open the memory of process {}: {}: {}", address.pid, path,
         system_reason());
  const engine::Buffer closer = owner(file);
  // If its owner could truncate the file, the next access would end this process.
  const int seals = fcntl(file, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    fail(Code::kIo, "{} is not the memory that process {} told of: it can be cut short", path,
         address.pid);
  struct stat status {};
  if (fstat(file, &status) != 0) fail(Code::kIo, "cannot look at {}: {}", path, system_reason());
  if (address.bytes > kMostMapped || !S_ISREG(status.st_mode) ||
      std::size_t(status.st_size) != file_bytes(address.bytes)) {
    fail(Code::kIo, "{} is not the memory that process {} told of: {} bytes, not {}", path,
         address.pid, status.st_size, file_bytes(std::min(address.bytes, kMostMapped)));
  }
  engine::Buffer buffer = map(file, address.bytes, path);
  std::uint64_t key = 0;
  std::memcpy(&key, buffer.data() + key_offset(address.bytes), sizeof key);
  if (key != address.key) {
    fail(Code::kIo, "{} is not the memory that process {} told of: another key", path, address.pid);
  }
  return buffer;
}

}  // namespace lockstep::collectives
