// SPDX-License-Identifier: MIT
#include "engine/report/event_log.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <ostream>
#include <system_error>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::engine {
namespace {

constexpr std::size_t kMostHeldEvents = std::size_t(1) << 20;  // bytes
constexpr std::chrono::milliseconds kLastEventsWait{1000};

double event_time() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return double(std::chrono::duration_cast<std::chrono::milliseconds>(since).count()) / 1000;
}

// Returns whether a regular file does not end with a newline.
bool ends_within_a_line(int file) {
  struct stat status {};
  char last = '\n';
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) return false;
  return ::pread(file, &last, 1, status.st_size - 1) == 1 && last != '\n';
}

}  // namespace

EventLog::EventLog(const std::string& path, Log log) : path_(path), log_(std::move(log)) {
  if (path.empty()) return;
  open();
  if (file_ < 0 && !fifo_) {
    fail(Code::kIo, "cannot write {}: {}", path, std::generic_category().message(errno));
  }
  broken_line_ = ends_within_a_line(file_);
}

EventLog::EventLog(std::ostream& stream, Log log)
    : stream_(&stream), path_("events"), log_(std::move(log)) {}

EventLog::~EventLog() {
  const auto end = Clock::now() + kLastEventsWait;
  while (!flush()) {
    const int reason = errno;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (reason != EAGAIN || left <= 0) {
      report(reason);
      break;
    }
    pollfd ready{file_, POLLOUT, 0};
    ::poll(&ready, 1, int(left));
  }
  if (file_ >= 0) ::close(file_);
}

// Opens a FIFO for writing only, because a process that can also read it never learns that its
// reader has gone. This fails while nobody reads yet.
void EventLog::open() {
  struct stat status {};
  fifo_ = ::stat(path_.c_str(), &status) == 0 && S_ISFIFO(status.st_mode);
  const int flags = O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  file_ = ::open(path_.c_str(), flags | (fifo_ ? O_WRONLY : O_RDWR), 0644);
  fifo_ = fifo_ && (file_ >= 0 || errno == ENXIO);
}

// Returns whether no line is held any more; else errno has the reason.
bool EventLog::flush() {
  if (held_.empty()) return true;
  if (file_ < 0) open();
  if (file_ < 0) return false;
  while (!held_.empty()) {
    const ssize_t written = ::write(file_, held_.data(), held_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    broken_line_ = held_[std::size_t(written) - 1] != '\n';
    held_.erase(0, std::size_t(written));
  }
  return true;
}

bool EventLog::put(std::string_view text) {
  if (stream_ != nullptr) {
    stream_->clear();
    stream_->write(text.data(), std::streamsize(text.size()));
    stream_->flush();
    errno = EIO;  // streams give no reason
    return stream_->good();
  }
  if (held_.empty() && broken_line_) held_ += '\n';
  const bool room = held_.size() + text.size() <= kMostHeldEvents;
  if (room) held_ += text;
  if (!flush() && errno != EAGAIN) {
    held_.clear();
    return false;
  }
  if (!room) errno = EAGAIN;
  return room;
}

void EventLog::report(int reason) {
  if (std::exchange(reported_, true)) return;
  log_.warning("cannot write {}: {}; events are lost, training goes on", path_,
               reason == EAGAIN                     ? "its reader stands still"
               : reason == ENXIO || reason == EPIPE ? "no process reads it"
                                                    : std::generic_category().message(reason));
}

void EventLog::write(std::string_view event, std::initializer_list<Field> fields) {
  if (path_.empty()) return;
  nlohmann::ordered_json line{{"time", event_time()}, {"event", event}};
  for (const Field& field : fields) {
    std::visit([&](const auto& value) { line[std::string(field.key)] = value; }, field.value);
  }
  using Handler = nlohmann::ordered_json::error_handler_t;
  const std::string text = line.dump(-1, ' ', false, Handler::replace) + "\n";
  if (!put(text)) report(errno);
}

}  // namespace lockstep::engine
