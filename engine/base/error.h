// SPDX-License-Identifier: MIT
// Two kinds of wrong. `Error` is what a caller may handle: bad input, a lost peer, a full disk. A
// broken invariant is a defect of lockstep: it stops the program with a message and its place.
// Thread-safe; costs nothing until something is wrong (messages are formatted only then).
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
  kInvalid,      // the caller asked for something that cannot be: flags, shapes, clusters
  kIo,           // the system refused: files, memory, sockets
  kMemory,       // more was asked for than there is, or than may be taken: names the largest part
  kCorrupt,      // a file is not what it says: checksum, header, size
  kDevice,       // a device or its library failed
  kTimeout,      // a deadline passed: names who was missing
  kPeerLost,     // another process or host is gone: names it
  kUnavailable,  // failed now, may work after a restore: `Trainer` tries again where told to
  kAborted,      // another rank failed first; the text is its text
};

// "invalid", "io", ...: for logs.
std::string_view name(Code code);

class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  // `ranks`: which this error is about, in the job's numbering. `located`: the text says where the
  // job waited for them.
  Error(Code code, const std::string& message, std::vector<int> ranks, bool located = false);
  Code code() const { return code_; }
  // The lost ranks of kPeerLost, the late ranks of kTimeout, ascending; empty where not known.
  const std::vector<int>& ranks() const;
  bool located() const { return located_; }
  // The option by which a user changes what is wrong; kNone where there is none.
  Option option() const { return option_; }
  Error with(const std::string& message) const;  // the same error with another text
  Error about(Option option) const;              // the same error about an option

 private:
  Code code_;
  bool located_ = false;
  Option option_ = Option::kNone;
  std::shared_ptr<const std::vector<int>> ranks_;  // shared: a copy of an error must not throw
};

// The error itself where it is an Error, else kAborted with its text.
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

// The same, about an option.
template <class... Arguments>
void require(bool ok, Option option, fmt::format_string<Arguments...> text,
             Arguments&&... arguments) {
  if (!ok)
    throw Error(Code::kInvalid, fmt::format(text, std::forward<Arguments>(arguments)...))
        .about(option);
}

// Prints `what` with its place on standard error and aborts.
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
