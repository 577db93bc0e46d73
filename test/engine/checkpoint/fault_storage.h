// SPDX-License-Identifier: MIT
// A Storage that forwards calls to another one and injects a fault into the k-th. Calls of its
// files count too. Not thread-safe.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/checkpoint/storage.h"

namespace lockstep::test {

class FaultStorage : public engine::Storage {
 public:
  enum class When {
    kBefore,  // the call does nothing
    kHalf,    // half a write, one file removed, otherwise nothing
    kAfter,   // the fault comes after the call
  };
  // `strike` throws or ends the process; if it returns, the call proceeds. With `stays`, all calls
  // after the k-th fail too, as on a disk that stays full. Calls are counted from 0.
  FaultStorage(engine::Storage& real, int call, When when, std::function<void()> strike,
               bool stays = false);
  static void no_space();  // throws the error of a full disk
  int calls() const { return calls_; }

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
  std::unique_ptr<engine::StorageLock> lock(const std::string& path, const std::string& mine,
                                            std::string& holder) override;

 private:
  class File;
  // Executes one call. `work` is the complete operation, `half` the part of it before the fault.
  void run(const std::function<void()>& work, const std::function<void()>& half = {});
  engine::Storage& real_;
  int call_;
  When when_;
  std::function<void()> strike_;
  bool stays_;
  int calls_ = 0;
};

}  // namespace lockstep::test
