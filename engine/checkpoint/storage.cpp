// SPDX-License-Identifier: MIT
#include "engine/checkpoint/storage.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/plain_file.h"

namespace lockstep::engine {
namespace {

constexpr int kLockTries = 100;           // retries after a concurrent unlock
constexpr std::size_t kMostHolder = 200;  // bytes read of the holder's text

[[noreturn]] void refuse(std::string_view verb, const std::string& path, int error,
                         Code code = Code::kIo) {
  fail(code, "cannot {} {}: {}", verb, path, std::generic_category().message(error));
}

// Returns 0, or the errno of the failed sync.
int sync_error(int file) {
  int result = 0;
  do {
    result = ::fsync(file);
  } while (result != 0 && errno == EINTR);
  // Some file systems cannot sync folders and return EINVAL, so there is nothing to wait for.
  return result != 0 && errno != EINVAL ? errno : 0;
}

void sync_folder_now(const std::string& path) {
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) refuse("sync", path, errno);
  const int error = sync_error(folder);
  ::close(folder);
  if (error != 0) refuse("sync", path, error);
}

PlainFile open_file(std::string_view verb, const std::string& path, int flags) {
  PlainFile file(path, flags);
  if (file.fault().empty()) return file;
  const bool reads = (flags & O_ACCMODE) == O_RDONLY;
  const int error = file.error();
  if (error == 0)
    fail(reads ? Code::kCorrupt : Code::kIo, "cannot {} {}: it {}", verb, path, file.fault());
  if (error == ELOOP && !reads) fail(Code::kIo, "cannot {} {}: it is a symbolic link", verb, path);
  const bool absent = error == ENOENT || error == ENOTDIR || error == ELOOP || error == ENXIO;
  refuse(verb, path, error, reads && absent ? Code::kCorrupt : Code::kIo);
}

void write_all(const PlainFile& file, const std::string& path, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.number(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) refuse("write", path, errno);
    if (written == 0) refuse("write", path, ENOSPC);
    bytes = bytes.subspan(std::size_t(written));
  }
}

class PosixFile : public StorageFile {
 public:
  PosixFile(PlainFile file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  void write(std::span<const std::byte> bytes) override { write_all(file_, path_, bytes); }
  void sync() override {
    if (const int error = sync_error(file_.number()); error != 0) refuse("sync", path_, error);
  }

 private:
  PlainFile file_;
  std::string path_;
};

// Returns whether `path` still names this open file.
bool names(const std::string& path, const PlainFile& file) {
  struct stat open {
  }, there{};
  return ::fstat(file.number(), &open) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         open.st_dev == there.st_dev && open.st_ino == there.st_ino;
}

// Locks a file with flock. The kernel releases the lock when the last descriptor is closed, also
// that of a killed process. The file is removed while the lock is held, when no other process can
// hold it.
class PosixLock : public StorageLock {
 public:
  PosixLock(PlainFile file, std::string path, bool works)
      : file_(std::move(file)), path_(std::move(path)), works_(works) {}
  PosixLock(const PosixLock&) = delete;
  PosixLock& operator=(const PosixLock&) = delete;
  ~PosixLock() override {
    if (works_ && names(path_, file_)) ::unlink(path_.c_str());
  }
  bool works() const override { return works_; }
  void say(const std::string& text) {
    if (::ftruncate(file_.number(), 0) != 0) refuse("write", path_, errno);
    write_all(file_, path_, std::as_bytes(std::span(text)));
  }

 private:
  PlainFile file_;
  std::string path_;
  bool works_;
};

class PosixStorage : public Storage {
 public:
  std::vector<std::string> make_folder(const std::string& path) override {
    std::vector<std::string> made;
    for (std::size_t slash = 0; slash != std::string::npos;) {
      slash = path.find('/', slash + 1);
      if (make_one_folder(path.substr(0, slash))) made.push_back(path.substr(0, slash));
    }
    return made;
  }

  bool remove_folder(const std::string& path) override { return ::rmdir(path.c_str()) == 0; }

  std::unique_ptr<StorageFile> create(const std::string& path) override {
    return std::make_unique<PosixFile>(
        open_file("write", path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW), path);
  }

  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) {
      const int error = errno;
      fail(Code::kIo, "cannot rename {} to {}: {}", from, to,
           std::generic_category().message(error));
    }
  }

  void sync_folder(const std::string& path) override { sync_folder_now(path); }

  void remove_tree(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);  // does not follow symbolic links
    if (error) fail(Code::kIo, "cannot remove {}: {}", path, error.message());
  }

  std::vector<std::string> list(const std::string& folder) override {
    DIR* stream = ::opendir(folder.c_str());
    if (stream == nullptr && errno == ENOENT) return {};
    if (stream == nullptr) refuse("list", folder, errno);
    const std::unique_ptr<DIR, int (*)(DIR*)> closer(stream, &::closedir);
    std::vector<std::string> names;
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(stream);
      if (entry == nullptr && errno != 0) refuse("list", folder, errno);
      if (entry == nullptr) break;
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  bool exists(const std::string& path) override {
    struct stat status {};
    if (::lstat(path.c_str(), &status) == 0) return true;
    if (errno != ENOENT && errno != ENOTDIR) refuse("look at", path, errno);
    return false;
  }

  std::uint64_t room(const std::string& folder) override {
    struct statvfs status {};
    if (::statvfs(folder.c_str(), &status) != 0) refuse("look at the disk of", folder, errno);
    if (status.f_blocks == 0) return kUnknownRoom;  // many FUSE file systems report nothing
    return std::uint64_t(status.f_bavail) * status.f_frsize;
  }

  std::uint64_t size(const std::string& path) override {
    return open_file("read", path, O_RDONLY).bytes();
  }

  void read(const std::string& path, std::uint64_t offset, std::span<std::byte> to) override {
    const PlainFile file = open_file("read", path, O_RDONLY);
    try {
      const std::size_t got = file.read({reinterpret_cast<char*>(to.data()), to.size()}, offset);
      if (got < to.size()) {
        fail(Code::kCorrupt, "cannot read {}: it ends at byte {}, {} bytes too early", path,
             offset + got, to.size() - got);
      }
    } catch (const std::system_error& error) {
      refuse("read", path, error.code().value());
    }
  }

  // Between opening and locking, the last holder may have removed the file. Then the locked file is
  // no longer the one that others find under this name, and the loop tries again.
  std::unique_ptr<StorageLock> lock(const std::string& path, const std::string& mine,
                                    std::string& holder) override {
    for (int tries = 0; tries < kLockTries; ++tries) {
      PlainFile file = open_file("lock", path, O_RDWR | O_CREAT | O_NOFOLLOW);
      int result = 0;
      do {
        result = ::flock(file.number(), LOCK_EX | LOCK_NB);
      } while (result != 0 && errno == EINTR);
      if (result != 0 && errno == EWOULDBLOCK) {
        holder.assign(kMostHolder, '\0');
        const ssize_t got = ::pread(file.number(), holder.data(), holder.size(), 0);
        holder.resize(std::size_t(std::max<ssize_t>(got, 0)));
        return nullptr;
      }
      const bool none = result != 0 && (errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOLCK);
      if (result != 0 && !none) refuse("lock", path, errno);
      if (!none && !names(path, file)) continue;
      auto lock = std::make_unique<PosixLock>(std::move(file), path, !none);
      lock->say(mine);
      return lock;
    }
    fail(Code::kIo, "cannot lock {}: others remove it again and again", path);
  }

 private:
  // Returns false if the folder existed.
  static bool make_one_folder(const std::string& path) {
    if (::mkdir(path.c_str(), 0777) == 0) {
      const auto parent = std::filesystem::path(path).parent_path();
      const std::string above = parent.empty() ? "." : parent.string();
      sync_folder_now(above);
      return true;
    }
    // Not only EEXIST: "/" or a read-only parent folder may cause other errors.
    const int error = errno;
    struct stat status {};
    const bool there = ::stat(path.c_str(), &status) == 0;
    std::error_code is_no_link;
    const auto target = std::filesystem::read_symlink(path, is_no_link);
    if (!there && !is_no_link) {
      fail(Code::kIo, "cannot make folder {}: it is a symbolic link to {}, which is not there",
           path, target.string());
    }
    if (!there) refuse("make folder", path, error);
    if (!S_ISDIR(status.st_mode)) {
      fail(Code::kIo, "cannot make folder {}: there is a file of this name", path);
    }
    return false;
  }
};

}  // namespace

std::unique_ptr<Storage> posix_storage() {
  return std::make_unique<PosixStorage>();
}

}  // namespace lockstep::engine
