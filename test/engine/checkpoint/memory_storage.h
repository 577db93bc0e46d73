// SPDX-License-Identifier: MIT
// A Storage in memory that simulates a loss of power. Each unsynced change may survive it or not,
// independently, because file systems delay and reorder changes. A folder keeps its current
// entries, its entries on disk, and the changes between them; a file keeps both contents. Not
// thread-safe.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/checkpoint/storage.h"

namespace lockstep::test {

class MemoryStorage : public engine::Storage {
 public:
  MemoryStorage();
  ~MemoryStorage() override;
  // Returns an independent copy of all folders and files, all synced.
  std::unique_ptr<MemoryStorage> copy() const;
  void lose_power(std::mt19937_64& random);
  std::vector<std::byte>& contents(const std::string& path);  // of a file; tests damage it
  void limit(std::uint64_t bytes) { limit_ = bytes; }         // of all files, as a full disk

  std::vector<std::string> make_folder(const std::string& path) override;
  bool remove_folder(const std::string& path) override;
  std::unique_ptr<engine::StorageFile> create(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void sync_folder(const std::string& path) override;
  void remove_tree(const std::string& path) override;
  std::vector<std::string> list(const std::string& folder) override;
  bool exists(const std::string& path) override;
  std::uint64_t room(const std::string& folder) override;
  std::uint64_t size(const std::string& path) override;
  void read(const std::string& path, std::uint64_t offset, std::span<std::byte> to) override;
  // The storage must outlive the lock.
  std::unique_ptr<engine::StorageLock> lock(const std::string& path, const std::string& mine,
                                            std::string& holder) override;

 private:
  struct Node;
  class File;
  class Lock;
  using NodePointer = std::shared_ptr<Node>;  // shared by current and on-disk entries
  static void settle(Node& node, std::mt19937_64& random);
  static void unlink_all(Node& node);
  static NodePointer copy_of(const Node& node);
  NodePointer find(const std::string& path) const;  // null: not there
  NodePointer folder_of(const std::string& path) const;
  static std::uint64_t bytes_of(const Node& node);
  NodePointer root_;
  std::uint64_t limit_ = std::numeric_limits<std::uint64_t>::max();
  std::map<std::string, std::string> locks_;  // holder by path
};

}  // namespace lockstep::test
