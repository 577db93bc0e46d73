// SPDX-License-Identifier: MIT
// Two kinds of failures. An `Error` is one that a caller may handle: bad input, a lost peer, a full
// disk. A broken invariant is a defect of lockstep; it aborts the program with a message and its
// source location. Thread-safe. Messages are formatted only on failure.
#pragma once
#include <fmt/core.h>

#include <chrono>
#include <memory>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/option.h"

namespace lockstep::engine {

enum class Code {
  kInvalid,      // invalid request: flags, shapes, clusters
  kIo,           // a system call failed: files, memory, sockets
  kMemory,       // exceeds memory or limit; names the largest part
  kCorrupt,      // wrong file content: checksum, header, size
  kDevice,       // a device or its library failed
  kTimeout,      // a deadline passed; names the missing ranks
  kPeerLost,     // another process or host is gone; names it
  kUnavailable,  // may succeed after a restore; `Trainer` can retry
  kAborted,      // another rank failed first; has its message
};

// Returns the name for logs: "invalid", "io", ...
std::string_view name(Code code);

class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  // `ranks` lists the ranks that this error is about, in the job's numbering. `located`: the text
  // says where the job waited for them.
  Error(Code code, const std::string& message, std::vector<int> ranks, bool located = false);
  Code code() const { return code_; }
  // Returns the lost ranks of kPeerLost or the late ranks of kTimeout, ascending; empty if unknown.
  const std::vector<int>& ranks() const;
  bool located() const { return located_; }
  // Returns the option by which the user can fix the problem, or kNone.
  Option option() const { return option_; }
  Error with(const std::string& message) const;  // the same error with another text
  Error about(Option option) const;              // the same error about an option

 private:
  Code code_;
  bool located_ = false;
  Option option_ = Option::kNone;
  std::shared_ptr<const std::vector<int>> ranks_;  // shared, so that copying never throws
};

// Returns the error itself if it is an Error, else kAborted with its text.
Error as_error(const std::exception& error);

template <class... Arguments>
[[noreturn]] void fail(Code code, fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  throw Error(code, fmt::format(text, std::forward<Arguments>(arguments)...));
}

// Throws Error(kInvalid) with the formatted text unless `ok`.
template <class... Arguments>
void require(bool ok, fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  if (!ok) throw Error(Code::kInvalid, fmt::format(text, std::forward<Arguments>(arguments)...));
}

// Does the same with the option that the error is about.
template <class... Arguments>
void require(bool ok, Option option, fmt::format_string<Arguments...> text,
             Arguments&&... arguments) {
  if (!ok)
    throw Error(Code::kInvalid, fmt::format(text, std::forward<Arguments>(arguments)...))
        .about(option);
}

// Prints `what` and its source location to standard error, and aborts.
[[noreturn]] void broken(std::string_view what,
                         std::source_location at = std::source_location::current());

inline void invariant(bool ok, std::string_view what,
                      std::source_location at = std::source_location::current()) {
  if (!ok) broken(what, at);
}

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace lockstep::engine
