// SPDX-License-Identifier: MIT
#include "test/engine/checkpoint/memory_storage.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::test {
namespace {

std::string name_of(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

[[noreturn]] void refuse(const std::string& path, const char* reason,
                         engine::Code code = engine::Code::kIo) {
  engine::fail(code, "cannot use {}: {}", path, reason);
}

}  // namespace

struct MemoryStorage::Node {
  // One change of a folder's entries; a rename removes and adds at once.
  struct Change {
    std::string removed, added;  // empty: none
    NodePointer node;
  };
  bool is_folder = false;
  std::vector<std::byte> now, on_disk;  // of a file
  std::map<std::string, NodePointer> entries, entries_on_disk;
  std::vector<Change> changes;

  static void apply(std::map<std::string, NodePointer>& to, const Change& change) {
    if (!change.removed.empty()) to.erase(change.removed);
    if (!change.added.empty()) to[change.added] = change.node;
  }
  void change(Change change) {
    apply(entries, change);
    changes.push_back(std::move(change));
  }
};

class MemoryStorage::File : public engine::StorageFile {
 public:
  File(MemoryStorage& storage, NodePointer node) : storage_(storage), node_(std::move(node)) {}
  void write(std::span<const std::byte> bytes) override {
    if (storage_.room("") < bytes.size()) refuse("a file", "No space left on device");
    node_->now.insert(node_->now.end(), bytes.begin(), bytes.end());
  }
  void sync() override { node_->on_disk = node_->now; }

 private:
  MemoryStorage& storage_;
  NodePointer node_;
};

class MemoryStorage::Lock : public engine::StorageLock {
 public:
  Lock(MemoryStorage& storage, std::string path) : storage_(storage), path_(std::move(path)) {}
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() override {
    storage_.locks_.erase(path_);
    storage_.remove_tree(path_);
  }
  bool works() const override { return true; }

 private:
  MemoryStorage& storage_;
  std::string path_;
};

MemoryStorage::MemoryStorage() : root_(std::make_shared<Node>()) {
  root_->is_folder = true;
}
MemoryStorage::~MemoryStorage() = default;

MemoryStorage::NodePointer MemoryStorage::copy_of(const Node& node) {
  auto copy = std::make_shared<Node>();
  copy->is_folder = node.is_folder;
  copy->now = copy->on_disk = node.now;
  for (const auto& [name, entry] : node.entries) copy->entries[name] = copy_of(*entry);
  copy->entries_on_disk = copy->entries;
  return copy;
}

std::unique_ptr<MemoryStorage> MemoryStorage::copy() const {
  auto result = std::make_unique<MemoryStorage>();
  result->root_ = copy_of(*root_);
  return result;
}

// Simulates the loss of power. An unsynced file may have its old contents, its new contents, a part
// of them, or zeros.
void MemoryStorage::settle(Node& node, std::mt19937_64& random) {
  for (const Node::Change& change : node.changes) {
    if (random() % 2) Node::apply(node.entries_on_disk, change);
  }
  node.changes.clear();
  node.entries = node.entries_on_disk;
  if (node.now != node.on_disk) {
    switch (random() % 4) {
      case 0:
        break;
      case 1:
        node.on_disk = node.now;
        break;
      case 2:
        node.on_disk.assign(node.now.begin(),
                            node.now.begin() + std::ptrdiff_t(random() % node.now.size()));
        break;
      default:
        node.on_disk.assign(node.now.size(), std::byte{0});
    }
    node.now = node.on_disk;
  }
  for (auto& [name, entry] : node.entries) settle(*entry, random);
}

void MemoryStorage::lose_power(std::mt19937_64& random) {
  settle(*root_, random);
}

MemoryStorage::NodePointer MemoryStorage::find(const std::string& path) const {
  NodePointer node = root_;
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    const auto entry = node->entries.find(name);
    if (!name.empty() && entry == node->entries.end()) return nullptr;
    if (!name.empty()) node = entry->second;
    begin = end + 1;
  }
  return node;
}

MemoryStorage::NodePointer MemoryStorage::folder_of(const std::string& path) const {
  const std::size_t slash = path.rfind('/');
  NodePointer folder = slash == std::string::npos ? root_ : find(path.substr(0, slash));
  if (!folder || !folder->is_folder) refuse(path, "No such file or directory");
  return folder;
}

std::vector<std::byte>& MemoryStorage::contents(const std::string& path) {
  const NodePointer node = find(path);
  if (!node || node->is_folder) refuse(path, "not a file", engine::Code::kCorrupt);
  return node->now;
}

std::vector<std::string> MemoryStorage::make_folder(const std::string& path) {
  std::vector<std::string> all_made;
  for (std::size_t slash = 0; slash != std::string::npos;) {
    slash = path.find('/', slash + 1);
    const std::string part = path.substr(0, slash);
    const NodePointer there = find(part);
    if (there && !there->is_folder) refuse(part, "it is a file");
    if (there) continue;
    auto made = std::make_shared<Node>();
    made->is_folder = true;
    const NodePointer folder = folder_of(part);
    folder->change({"", name_of(part), made});
    sync_folder(part.substr(0, part.size() - name_of(part).size()));
    all_made.push_back(part);
  }
  return all_made;
}

bool MemoryStorage::remove_folder(const std::string& path) {
  const NodePointer there = find(path);
  if (!there || !there->is_folder || !there->entries.empty()) return false;
  remove_tree(path);
  return true;
}

std::unique_ptr<engine::StorageFile> MemoryStorage::create(const std::string& path) {
  NodePointer node = find(path);
  if (node && node->is_folder) refuse(path, "it is a folder");
  if (!node) {
    node = std::make_shared<Node>();
    folder_of(path)->change({"", name_of(path), node});
  }
  node->now.clear();
  return std::make_unique<File>(*this, node);
}

void MemoryStorage::rename(const std::string& from, const std::string& to) {
  const NodePointer node = find(from), there = find(to), folder = folder_of(from);
  if (!node) refuse(from, "No such file or directory");
  if (folder != folder_of(to)) refuse(to, "renaming to another folder is not needed here");
  if (there && there->is_folder && !there->entries.empty()) refuse(to, "Directory not empty");
  folder->change({name_of(from), name_of(to), node});
}

void MemoryStorage::sync_folder(const std::string& path) {
  const NodePointer folder = find(path);
  if (!folder || !folder->is_folder) refuse(path, "not a folder");
  folder->entries_on_disk = folder->entries;
  folder->changes.clear();
}

void MemoryStorage::unlink_all(Node& node) {
  const auto entries = node.entries;
  for (const auto& [name, entry] : entries) {
    unlink_all(*entry);
    node.change({name, "", nullptr});
  }
}

void MemoryStorage::remove_tree(const std::string& path) {
  const NodePointer node = find(path);
  if (!node) return;
  unlink_all(*node);
  folder_of(path)->change({name_of(path), "", nullptr});
}

std::vector<std::string> MemoryStorage::list(const std::string& folder) {
  std::vector<std::string> names;
  const NodePointer node = find(folder);
  if (!node) return names;
  if (!node->is_folder) refuse(folder, "Not a directory");
  for (const auto& [name, entry] : node->entries) names.push_back(name);
  return names;
}

bool MemoryStorage::exists(const std::string& path) {
  return find(path) != nullptr;
}

std::uint64_t MemoryStorage::bytes_of(const Node& node) {
  std::uint64_t bytes = node.now.size();
  for (const auto& [name, entry] : node.entries) bytes += bytes_of(*entry);
  return bytes;
}

std::uint64_t MemoryStorage::room(const std::string&) {
  const std::uint64_t used =
      limit_ == std::numeric_limits<std::uint64_t>::max() ? 0 : bytes_of(*root_);
  return limit_ - std::min(limit_, used);
}

std::uint64_t MemoryStorage::size(const std::string& path) {
  return contents(path).size();
}

void MemoryStorage::read(const std::string& path, std::uint64_t offset, std::span<std::byte> to) {
  const auto& bytes = contents(path);
  if (offset > bytes.size() || to.size() > bytes.size() - offset) {
    refuse(path, "it is too short", engine::Code::kCorrupt);
  }
  if (!to.empty()) std::memcpy(to.data(), bytes.data() + offset, to.size());
}

std::unique_ptr<engine::StorageLock> MemoryStorage::lock(const std::string& path,
                                                         const std::string& mine,
                                                         std::string& holder) {
  if (const auto there = locks_.find(path); there != locks_.end()) {
    holder = there->second;
    return nullptr;
  }
  create(path)->write(std::as_bytes(std::span(mine)));
  locks_[path] = mine;
  return std::make_unique<Lock>(*this, path);
}

}  // namespace lockstep::test
