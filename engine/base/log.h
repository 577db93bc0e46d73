// SPDX-License-Identifier: MIT
// Log lines for people on standard error (standard output is for results): the speaker and the
// text, after the date and the level if it is a warning or an error. A Log is passed as a value,
// not a global. Copies share one sink. Thread-safe; each line is written whole.
#pragma once
#include <fmt/core.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::engine {

class Log {
 public:
  enum class Level { kDebug, kInfo, kWarning, kError };
  // A function that receives the lines instead of standard error, e.g. in tests.
  using Sink = std::function<void(Level, std::string_view line)>;

  // `speaker` precedes each line, e.g. "rank 2"; an empty one adds nothing.
  explicit Log(std::string speaker = {}, Level least = Level::kInfo, Sink sink = {});
  template <class... A>
  void debug(fmt::format_string<A...> text, A&&... a) const {
    write(Level::kDebug, fmt::format(text, std::forward<A>(a)...));
  }
  template <class... A>
  void info(fmt::format_string<A...> text, A&&... a) const {
    write(Level::kInfo, fmt::format(text, std::forward<A>(a)...));
  }
  template <class... A>
  void warning(fmt::format_string<A...> text, A&&... a) const {
    write(Level::kWarning, fmt::format(text, std::forward<A>(a)...));
  }
  template <class... A>
  void error(fmt::format_string<A...> text, A&&... a) const {
    write(Level::kError, fmt::format(text, std::forward<A>(a)...));
  }
  Log as(std::string speaker) const;  // the same sink and level, another speaker

 private:
  struct Shared;
  void write(Level level, const std::string& text) const;
  std::string speaker_;
  std::shared_ptr<Shared> shared_;  // shared by all copies: one sink, one lock
};

}  // namespace lockstep::engine
