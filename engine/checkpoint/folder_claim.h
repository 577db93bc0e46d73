// SPDX-License-Identifier: MIT
// One run at a time saves into a folder of checkpoints: two would remove each other's. The chief of
// a run claims the folder before it looks what is there, and keeps it until the run has ended or
// its process is gone: a run that is started again right after a kill gets it. Who only reads
// claims nothing. One thread at a time.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/base/log.h"
#include "engine/checkpoint/storage.h"

namespace lockstep::engine {

class FolderClaim {
 public:
  // Makes the folder, and takes the lock in it. Throws Error(kIo), which says who has it, where
  // another run has. What else went wrong is kept for `require_held`: a run that has nothing left
  // to do needs no folder that can be written. The storage outlives the claim.
  FolderClaim(Storage& storage, const std::string& folder, const Log& log);
  // Gives the lock back. Folders that the claim made, and that are still empty, are removed: a run
  // that is refused before it saves leaves nothing.
  ~FolderClaim();
  FolderClaim(const FolderClaim&) = delete;
  FolderClaim& operator=(const FolderClaim&) = delete;
  // Before anything is written: throws Error(kIo) where the lock could not be taken.
  void require_held() const;

 private:
  Storage& storage_;
  std::vector<std::string> made_;  // the topmost first
  std::unique_ptr<StorageLock> lock_;
  std::string wrong_;  // empty: nothing
};

}  // namespace lockstep::engine
