// SPDX-License-Identifier: MIT
// A log of events for programs: JSON lines, one object per line, written by the chief.
//
//   {"time":1760000000.125,"event":"step","step":42,"loss":0.25,"note":"..."}
//
// `time` is in seconds since 1970 (UTC), other fields are as given, and non-finite numbers become
// null. `write` passes each line whole to the system before it returns, and never waits. If a pipe
// is full, up to 1 MiB of lines are held until its reader continues; the destructor waits for one
// second. A full disk or a reader that has gone does not stop training. The first lost line is
// reported in the log, and writing continues as soon as it can. Used by one thread at a time.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <string_view>
#include <variant>

#include "engine/base/log.h"

namespace lockstep::engine {

class EventLog {
 public:
  using Value = std::variant<std::int64_t, std::uint64_t, double, std::string>;
  struct Field {
    std::string_view key;
    Value value;
  };

  // Appends to a file, on a new line if the last run was cut off within one. Throws Error(kIo) if
  // it cannot be opened. With an empty path nothing is written. A FIFO may get a reader later;
  // events are lost until then.
  EventLog(const std::string& path, Log log);
  // Writes to `stream`, which must outlive this.
  EventLog(std::ostream& stream, Log log);
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // Never throws because of errors of the file.
  void write(std::string_view event, std::initializer_list<Field> fields = {});
  bool whole() const { return !reported_; }  // no line was lost so far

 private:
  void open();
  bool put(std::string_view text);  // false: errno has the reason
  bool flush();
  void report(int reason);          // only the first time
  std::ostream* stream_ = nullptr;  // stream_ or file_ is set, or neither
  int file_ = -1;
  std::string path_;
  bool fifo_ = false;
  std::string held_;  // lines that the reader has not taken
  Log log_;
  bool broken_line_ = false;  // the file ends within a line
  bool reported_ = false;
};

}  // namespace lockstep::engine
