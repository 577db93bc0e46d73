// SPDX-License-Identifier: MIT
// The fastest kernel for each problem, so that all replicas of a process and later processes use
// the same one and compute the same bits. A problem is measured once: the first choice holds for
// all users of a file. Problems and choices are lines of text.
//
// Each machine has one file, `kernels-<hash>.txt`, in one folder. It is written under another name
// and renamed, so that it is whole or absent; a checksum detects damage. A writer holds a lock,
// `kernels-<hash>.txt.lock`, and keeps what others have written meanwhile. Without a folder, or if
// the file cannot be written, choices apply to this object only.
//
// Thread-safe: one thread chooses at a time, and others wait. A choice reads the file, and a new
// one also writes it, which takes some milliseconds. Errors are those of `build` and `find`.
// Problems with the file cause one warning.
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
  static constexpr std::size_t kMostBytes = std::size_t(4) << 20;  // per file

  // Returns whether a choice can be built here and its memory is available.
  using Build = std::function<bool(const std::string& choice)>;
  // Finds a choice that was built.
  using Find = std::function<std::string()>;

  // Creates a cache. `machine`: one line with everything that a choice depends on besides the
  // problem. `folder` may be empty.
  PlanCache(std::filesystem::path folder, std::string machine, Log log);

  // Returns the choice for `problem`: the one in use or adopted, else the one in the file, else the
  // result of `find`. If `build` refuses a cached choice, it is replaced with a warning. The
  // returned choice is the last one that `build` accepted or `find` returned. Neither may call this
  // object. `lasting` is read after `find` has returned. If it is false, a resource was short, so
  // the choice applies to this process only and is not stored.
  std::string choose(const std::string& problem, const Build& build, const Find& find,
                     const bool& lasting = true);

  // Returns all choices of this object so far, sorted by problem, as lines "problem = choice".
  std::string text() const;
  // Adopts such a text of another object, for problems without a choice so far. These choices take
  // precedence over the file. Throws Error(kCorrupt) and adopts nothing if the text is malformed.
  void adopt(const std::string& text);
  std::filesystem::path file() const;
  const Log& log() const { return log_; }

 private:
  using Choices = std::map<std::string, std::string>;

  // Returns the choice that holds for `problem`. If there is none, or only refused ones, `mine`
  // becomes the choice; empty if `mine` is empty.
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
  bool warned_ = false;  // about the file
};

}  // namespace lockstep::engine::cuda
