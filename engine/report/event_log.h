// SPDX-License-Identifier: MIT
// What happened, for programs: JSON lines, one object a line, written by the chief.
//
//   {"time":1760000000.125,"event":"step","step":42,"loss":0.25,"note":"..."}
//
// `time` is in seconds since 1970 (UTC), the rest as given; numbers that are not finite are null.
// Every line is handed to the system whole before `write` returns. It never waits: where a pipe is
// full, up to 1 MiB of lines are held back until its reader goes on, at the end for one second. A
// full disk or a reader that has gone is not worth a training run: the first line that is lost is
// reported in the log, and the run goes on; so does the log of events as soon as it can. One thread
// at a time.
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

  // Appends to a file, on a line of its own where the last run was cut off within one. Throws
  // Error(kIo) where it cannot be opened. An empty path: nothing is written. A FIFO may be read
  // later: events are lost until then.
  EventLog(const std::string& path, Log log);
  // Writes to a stream that outlives this.
  EventLog(std::ostream& stream, Log log);
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // Never throws for what goes wrong with the file.
  void write(std::string_view event, std::initializer_list<Field> fields = {});
  bool whole() const { return !reported_; }  // no line was lost so far

 private:
  void open();
  bool put(std::string_view text);  // errno tells why not
  bool flush();
  void report(int reason);          // the first time
  std::ostream* stream_ = nullptr;  // one of the two is there, or none
  int file_ = -1;
  std::string path_;
  bool fifo_ = false;
  std::string held_;  // what a reader that stands still has not taken
  Log log_;
  bool broken_line_ = false;  // the end of the file is not the end of a line
  bool reported_ = false;
};

}  // namespace lockstep::engine
