// SPDX-License-Identifier: MIT
// Only one run at a time may save into a checkpoint folder, since two would remove each other's
// checkpoints. The chief of a run claims the folder before it reads it. It holds the claim until
// the run ends or its process is gone, so a run that restarts right after a kill gets it. Readers
// need no claim. The claim is a lock (flock) of FOLDER/lock, which contains one line, "process 4711
// on host n1". The file is removed at the end; that of a killed run stays, unlocked. If the file
// system has no locks, a warning says that runs are not kept apart. Used by one thread at a time.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/base/log.h"
#include "engine/checkpoint/storage.h"

namespace lockstep::engine {

class FolderClaim {
 public:
  // Makes the folder and takes its lock. Throws Error(kIo), which names the holder, if another run
  // holds it. Other failures wait for `require_held`, because a run with nothing left to do needs
  // no writable folder. The storage must outlive the claim.
  FolderClaim(Storage& storage, const std::string& folder, const Log& log);
  // Releases the lock. Removes folders that the claim made and that are still empty, so a run that
  // is refused before it saves leaves nothing.
  ~FolderClaim();
  FolderClaim(const FolderClaim&) = delete;
  FolderClaim& operator=(const FolderClaim&) = delete;
  // Throws Error(kIo) if the lock could not be taken. Call it before anything is written.
  void require_held() const;

 private:
  Storage& storage_;
  std::vector<std::string> made_;  // topmost first
  std::unique_ptr<StorageLock> lock_;
  std::string wrong_;  // the failure; empty: none
};

}  // namespace lockstep::engine
