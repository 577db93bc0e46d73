// SPDX-License-Identifier: MIT
#include "test/engine/checkpoint/fault_storage.h"

#include <utility>

#include "engine/base/error.h"

namespace lockstep::test {

class FaultStorage::File : public engine::StorageFile {
 public:
  File(FaultStorage& owner, std::unique_ptr<engine::StorageFile> real)
      : owner_(owner), real_(std::move(real)) {}
  void write(std::span<const std::byte> bytes) override {
    owner_.run([&] { real_->write(bytes); }, [&] { real_->write(bytes.first(bytes.size() / 2)); });
  }
  void sync() override {
    owner_.run([&] { real_->sync(); });
  }

 private:
  FaultStorage& owner_;
  std::unique_ptr<engine::StorageFile> real_;
};

FaultStorage::FaultStorage(engine::Storage& real, int call, When when, std::function<void()> strike,
                           bool stays)
    : real_(real), call_(call), when_(when), strike_(std::move(strike)), stays_(stays) {}

void FaultStorage::no_space() {
  throw engine::Error(engine::Code::kIo, "cannot write: No space left on device");
}

void FaultStorage::run(const std::function<void()>& work, const std::function<void()>& half) {
  const int number = calls_++;
  const bool struck = number == call_ || (stays_ && number > call_);
  if (struck && when_ == When::kHalf && half) half();
  if (struck && when_ != When::kAfter) strike_();
  work();
  if (struck && when_ == When::kAfter) strike_();
}

std::vector<std::string> FaultStorage::make_folder(const std::string& path) {
  std::vector<std::string> made;
  run([&] { made = real_.make_folder(path); });
  return made;
}

bool FaultStorage::remove_folder(const std::string& path) {
  bool removed = false;
  run([&] { removed = real_.remove_folder(path); });
  return removed;
}

std::unique_ptr<engine::StorageFile> FaultStorage::create(const std::string& path) {
  std::unique_ptr<engine::StorageFile> file;
  run([&] { file = std::make_unique<File>(*this, real_.create(path)); });
  return file;
}

void FaultStorage::rename(const std::string& from, const std::string& to) {
  run([&] { real_.rename(from, to); });
}

void FaultStorage::sync_folder(const std::string& path) {
  run([&] { real_.sync_folder(path); });
}

void FaultStorage::remove_tree(const std::string& path) {
  run([&] { real_.remove_tree(path); },
      [&] {
        const auto names = real_.list(path);
        if (!names.empty()) real_.remove_tree(path + "/" + names.front());
      });
}

std::vector<std::string> FaultStorage::list(const std::string& folder) {
  std::vector<std::string> names;
  run([&] { names = real_.list(folder); });
  return names;
}

bool FaultStorage::exists(const std::string& path) {
  bool there = false;
  run([&] { there = real_.exists(path); });
  return there;
}

std::uint64_t FaultStorage::room(const std::string& folder) {
  std::uint64_t bytes = 0;
  run([&] { bytes = real_.room(folder); });
  return bytes;
}

std::uint64_t FaultStorage::size(const std::string& path) {
  std::uint64_t bytes = 0;
  run([&] { bytes = real_.size(path); });
  return bytes;
}

void FaultStorage::read(const std::string& path, std::uint64_t offset, std::span<std::byte> to) {
  run([&] { real_.read(path, offset, to); });
}

std::unique_ptr<engine::StorageLock> FaultStorage::lock(const std::string& path,
                                                        const std::string& mine,
                                                        std::string& holder) {
  std::unique_ptr<engine::StorageLock> lock;
  run([&] { lock = real_.lock(path, mine, holder); });
  return lock;
}

}  // namespace lockstep::test
