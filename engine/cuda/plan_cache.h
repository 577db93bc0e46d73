// SPDX-License-Identifier: MIT
// Which kernel was found the fastest for each problem, so that all replicas of a process, and the
// next process, take the same one and compute the same bits. What is found is measured once: of all
// who use a file, the first choice for a problem holds. Problems and choices are lines of text.
//
// There is one file for each machine, `kernels-<hash>.txt` in one folder. It is written under
// another name and renamed, so that it is whole or absent; a checksum tells a damaged one. Who
// writes holds a lock, `kernels-<hash>.txt.lock`, and keeps what others have written since. Without
// a folder, and where the file cannot be written, choices are those of this object alone.
//
// Any thread; one at a time chooses, others wait for it. A choice costs a read of the file, a new
// one also a write: some milliseconds. Errors: those of who builds and finds. What is wrong with
// the file is one warning.
#pragma once
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "engine/base/log.h"

namespace lockstep::engine::cuda {

class PlanCache {
 public:
  static constexpr std::size_t kMostBytes = std::size_t(4) << 20;  // of a file

  // Whether a choice can be built here, and has the memory that it needs.
  using Build = std::function<bool(const std::string& choice)>;
  // Finds a choice that was built.
  using Find = std::function<std::string()>;

  // `machine`: a line of all that a choice depends on besides the problem. `folder` may be empty.
  PlanCache(std::filesystem::path folder, std::string machine, Log log);

  // The choice for `problem`: the one in use or adopted, else the one in the file, else what `find`
  // returns. A kept one that `build` refuses is replaced, with a warning. The choice that is
  // returned is the last one that `build` accepted or `find` returned. These two may not call this
  // object. `lasting` is read when `find` has returned: false where something was short here, so
  // that its choice is of this process alone and not kept for others.
  std::string choose(const std::string& problem, const Build& build, const Find& find,
                     const bool& lasting = true);

  // All choices of this object so far, a line "problem = choice" each, sorted by problem.
  std::string text() const;
  // Such a text of another object: its choices hold here, before those of the file, for problems
  // that were not chosen for yet. Throws Error(kCorrupt), and adopts nothing, of another text.
  void adopt(const std::string& text);
  std::filesystem::path file() const;
  const Log& log() const { return log_; }

 private:
  using Choices = std::map<std::string, std::string>;

  // The choice that holds for `problem`. Where there is none, but those that are refused, it is
  // `mine` from now on; empty where that is empty.
  std::string keep(const std::string& problem, const std::string& mine,
                   const std::set<std::string>& refused);
  Choices read();
  void write(const Choices& stored);
  void warn_once(const std::string& what);

  const std::filesystem::path folder_;
  const std::string machine_;
  const Log log_;
  mutable std::mutex mutex_;
  Choices in_use_;
  bool warned_ = false;  // of the file
};

}  // namespace lockstep::engine::cuda
