// SPDX-License-Identifier: MIT
// Lines for people, on standard error (standard output belongs to results): level, who speaks,
// text. A value that is passed along, not a global. Copies share one sink; any thread may write; a
// line is written whole.
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
  // Where lines go instead of standard error: tests collect them.
  using Sink = std::function<void(Level, std::string_view line)>;

  // `speaker` stands in front of each line, e.g. "rank 2"; empty: nothing stands there.
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
