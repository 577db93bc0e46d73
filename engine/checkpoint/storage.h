// SPDX-License-Identifier: MIT
// The file system calls that a checkpoint needs, as an interface, so that tests can make every call
// fail. All calls throw Error(kIo) with the system's reason and the path if the system refuses.
// They throw Error(kCorrupt) for a file that cannot be read because it is absent, not a file, or
// too short. POSIX semantics (NFS and Lustre have them). At most one thread at a time per path.
//
// Only regular files are read and written, no pipes or devices. Symbolic links to folders, and to
// files that are read, are followed; renaming and removing affect the link. So if a checkpoint was
// moved to another disk and linked, only its link is removed when its turn comes. A file is never
// written through a link. Files have mode 0644 and folders 0777, less the umask.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::engine {

class StorageFile {
 public:
  virtual ~StorageFile() = default;  // closes and ignores errors; call sync first
  virtual void write(std::span<const std::byte> bytes) = 0;  // writes all bytes or throws
  virtual void sync() = 0;
};

// Represents a lock that this process holds. The destructor releases it, and so does the end of the
// process, however it ends.
class StorageLock {
 public:
  virtual ~StorageLock() = default;
  virtual bool works() const = 0;  // false: the file system has no locks
};

class Storage {
 public:
  virtual ~Storage() = default;
  // Makes the folder and its parents, each durable on return; an existing folder is fine. Returns
  // those that it made, the topmost first.
  virtual std::vector<std::string> make_folder(const std::string& path) = 0;
  // Removes an empty folder. Returns false if it is not empty or cannot be removed.
  virtual bool remove_folder(const std::string& path) = 0;
  virtual std::unique_ptr<StorageFile> create(const std::string& path) = 0;  // truncates
  virtual void rename(const std::string& from, const std::string& to) = 0;   // files and folders
  virtual void sync_folder(const std::string& path) = 0;
  virtual void remove_tree(const std::string& path) = 0;                 // an absent tree is fine
  virtual std::vector<std::string> list(const std::string& folder) = 0;  // names; none if absent
  virtual bool exists(const std::string& path) = 0;                      // true for a dangling link
  // `room` returns the bytes that can still be written on the folder's disk, or kUnknownRoom.
  static constexpr std::uint64_t kUnknownRoom = ~std::uint64_t(0);
  virtual std::uint64_t room(const std::string& folder) = 0;
  virtual std::uint64_t size(const std::string& path) = 0;
  // Reads bytes [offset, offset + to.size()) of a file; throws if the file is shorter.
  virtual void read(const std::string& path, std::uint64_t offset, std::span<std::byte> to) = 0;
  // Takes the lock `path` and writes `mine` into this file. The file exists while the lock is held;
  // if the holder is killed, it stays, unlocked. Returns null if another holds the lock, even in
  // this process; `holder` is then what that one wrote. Does not wait.
  virtual std::unique_ptr<StorageLock> lock(const std::string& path, const std::string& mine,
                                            std::string& holder) = 0;
};

std::unique_ptr<Storage> posix_storage();

}  // namespace lockstep::engine
