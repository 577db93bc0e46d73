// SPDX-License-Identifier: MIT
#include "engine/report/summary.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <concepts>
#include <filesystem>
#include <system_error>

#include "engine/base/crc32c.h"
#include "engine/base/error.h"

namespace lockstep::engine {
namespace {

static_assert(std::endian::native == std::endian::little, "records are little-endian");

template <class Number>
void append(std::string& out, Number number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// Protobuf's wire format has a key (field number and kind of value), and then the value.
enum class Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += char(value | 0x80);
  out += char(value);
}
void key(std::string& out, int field, Wire wire) {
  varint(out, std::uint64_t(field) << 3 | std::uint64_t(wire));
}
void bytes(std::string& out, int field, std::string_view value) {
  key(out, field, Wire::kBytes);
  varint(out, value.size());
  out += value;
}

// Field numbers of Event, Summary.Value and SessionLog.
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
constexpr int kSummaryValue = 1, kTag = 1, kSimpleValue = 2;
constexpr int kStatus = 1, kStart = 1;

std::uint32_t masked(std::uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] != 0 ? name : "localhost";
}

}  // namespace

Summary::Summary(const std::string& folder, Log log) : log_(std::move(log)) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    fail(Code::kIo, "no summary can be written to the folder {}: {}", folder, error.message());
  }
  // TensorBoard looks for this name. The number separates files of one process in the same second.
  const std::string stem = fmt::format("{}/events.out.tfevents.{:010}.{}.{}", folder,
                                       std::int64_t(seconds_since_1970()), host_name(), getpid());
  for (int number = 0; file_ < 0; ++number) {
    path_ = fmt::format("{}.{}", stem, number);
    file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file_ < 0 && errno != EEXIST) {
      fail(Code::kIo, "no summary can be written to the folder {}: {}", folder,
           std::generic_category().message(errno));
    }
  }
  begin_event(0);
  bytes(event_, kFileVersion, "brain.Event:2");
  put();
}

Summary::~Summary() {
  if (file_ >= 0) ::close(file_);
}

void Summary::begin_event(std::int64_t step) {
  event_.clear();
  key(event_, kWallTime, Wire::kFixed64);
  append(event_, seconds_since_1970());
  key(event_, kStep, Wire::kVarint);
  varint(event_, std::uint64_t(step));
}

void Summary::begin(std::int64_t step) {
  if (begun_) return;
  begun_ = true;
  begin_event(step);
  value_.clear();
  key(value_, kStatus, Wire::kVarint);
  varint(value_, kStart);
  bytes(event_, kSessionLog, value_);
  put();
}

void Summary::write(std::int64_t step, std::span<const Scalar> scalars) {
  begin(step);
  record_.clear();  // holds the message Summary until put
  for (const Scalar& scalar : scalars) {
    value_.clear();
    bytes(value_, kTag, scalar.tag);
    key(value_, kSimpleValue, Wire::kFixed32);
    append(value_, float(scalar.value));
    bytes(record_, kSummaryValue, value_);
  }
  begin_event(step);
  bytes(event_, kSummary, record_);
  put();
}

void Summary::put() {
  record_.clear();
  append(record_, std::uint64_t(event_.size()));
  append(record_, masked(crc32c(record_)));
  record_ += event_;
  append(record_, masked(crc32c(event_)));
  std::string_view left = record_;
  while (!left.empty()) {
    const ssize_t written = ::write(file_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    left.remove_prefix(std::size_t(written));
  }
  if (left.empty()) {
    whole_ += std::int64_t(record_.size());
    return;
  }
  const int reason = errno;
  const bool cut = ::ftruncate(file_, whole_) == 0 && ::lseek(file_, whole_, SEEK_SET) == whole_;
  if (reported_) return;
  reported_ = true;
  log_.warning("cannot write {}: {}; {}, training goes on", path_,
               std::generic_category().message(reason),
               cut ? "summaries are lost" : "its end is not whole");
}

}  // namespace lockstep::engine
