// SPDX-License-Identifier: MIT
// What a checkpoint needs of a file system, so that tests can make every call of it fail. All calls
// throw Error(kIo) with the system's reason and the path where the system refuses. A file that
// cannot be read since it is not there, is no file or is too short is an Error(kCorrupt). POSIX
// semantics (NFS and Lustre have them). One thread at a time per path.
//
// Only plain files are read and written, no pipes or devices. Symbolic links to folders, and to
// files that are read, are followed; renaming and removing are done to the link. A file is never
// written through a link. Files are made with mode 0644 and folders with 0777, less the umask.
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
  virtual ~StorageFile() = default;  // closes; an error of closing is lost: call sync before
  virtual void write(std::span<const std::byte> bytes) = 0;  // all of them, or throws
  virtual void sync() = 0;
};

// A lock that this process has. Destroying it gives it back, and so does the end of the process,
// however it ends.
class StorageLock {
 public:
  virtual ~StorageLock() = default;
  virtual bool works() const = 0;  // false: the file system knows no locks, nobody is held off
};

class Storage {
 public:
  virtual ~Storage() = default;
  // With parents, each durable when this returns; there already: fine. Those that were not there,
  // the topmost first.
  virtual std::vector<std::string> make_folder(const std::string& path) = 0;
  // An empty one. False: it holds something, or cannot be removed.
  virtual bool remove_folder(const std::string& path) = 0;
  virtual std::unique_ptr<StorageFile> create(const std::string& path) = 0;  // truncates
  virtual void rename(const std::string& from, const std::string& to) = 0;   // files and folders
  virtual void sync_folder(const std::string& path) = 0;
  virtual void remove_tree(const std::string& path) = 0;                 // not there: fine
  virtual std::vector<std::string> list(const std::string& folder) = 0;  // names; none: not there
  virtual bool exists(const std::string& path) = 0;                      // a link to nothing does
  // Bytes that may still be written on the disk of this folder; kUnknownRoom where it does not say.
  static constexpr std::uint64_t kUnknownRoom = ~std::uint64_t(0);
  virtual std::uint64_t room(const std::string& folder) = 0;
  virtual std::uint64_t size(const std::string& path) = 0;
  // Bytes [offset, offset + to.size()) of a file; throws where it is shorter.
  virtual void read(const std::string& path, std::uint64_t offset, std::span<std::byte> to) = 0;
  // Takes the lock `path`, a file that is there while somebody has it (and stays, unlocked, where
  // its process was killed), and writes `mine` into it. Null where another has it, be it of this
  // process: `holder` is then what that one wrote. Does not wait.
  virtual std::unique_ptr<StorageLock> lock(const std::string& path, const std::string& mine,
                                            std::string& holder) = 0;
};

std::unique_ptr<Storage> posix_storage();

}  // namespace lockstep::engine
