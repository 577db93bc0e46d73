// SPDX-License-Identifier: MIT
#include "engine/train/event_log.h"

#include <fcntl.h>
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

double event_time() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return double(std::chrono::duration_cast<std::chrono::milliseconds>(since).count()) / 1000;
}

// Whether the file's last byte is not the end of a line.
bool ends_within_a_line(int file) {
  struct stat status {};
  char last = '\n';
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) return false;
  return ::pread(file, &last, 1, status.st_size - 1) == 1 && last != '\n';
}

}  // namespace

EventLog::EventLog(const std::string& path, Log log) : path_(path), log_(std::move(log)) {
  if (path.empty()) return;
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) {
    fail(Code::kIo, "cannot write {}: {}", path, std::generic_category().message(errno));
  }
  broken_line_ = ends_within_a_line(file_);
}

EventLog::EventLog(std::ostream& stream, Log log)
    : stream_(&stream), path_("events"), log_(std::move(log)) {}

EventLog::~EventLog() {
  if (file_ >= 0) ::close(file_);
}

bool EventLog::put(std::string_view text) {
  if (stream_ != nullptr) {
    stream_->clear();
    stream_->write(text.data(), std::streamsize(text.size()));
    stream_->flush();
    errno = EIO;  // streams do not say why
    return stream_->good();
  }
  while (!text.empty()) {
    const ssize_t written = ::write(file_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(std::size_t(written));
    broken_line_ = true;  // until the last byte, the end of the line, is written
  }
  broken_line_ = false;
  return true;
}

void EventLog::write(std::string_view event, std::initializer_list<Field> fields) {
  if (stream_ == nullptr && file_ < 0) return;
  nlohmann::ordered_json line{{"time", event_time()}, {"event", event}};
  for (const Field& field : fields) {
    std::visit([&](const auto& value) { line[std::string(field.key)] = value; }, field.value);
  }
  using Handler = nlohmann::ordered_json::error_handler_t;
  const std::string text = line.dump(-1, ' ', false, Handler::replace) + "\n";
  if (put(broken_line_ ? "\n" + text : text) || reported_) return;
  reported_ = true;
  log_.warning("cannot write {}: {}; events are lost, training goes on", path_,
               std::generic_category().message(errno));
}

}  // namespace lockstep::engine
