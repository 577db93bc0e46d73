// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/plain_file.h"
#include "engine/base/random.h"
#include "engine/data/clicks.h"
#include "engine/data/criteo_line.h"
#include "engine/data/gzip_file.h"
#include "engine/data/near_miss.h"

namespace lockstep::engine::data {
namespace {

constexpr std::size_t kMostLine = 4096;  // bytes; a usual line has about 250
constexpr std::size_t kReadAtOnce = std::size_t(1) << 20;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// Returns a file descriptor, which the caller closes.
int opened(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    fail(Code::kIo, "data: {} is not a file, but a folder: name one file; {}", path,
         folder_content(path));
  }
  PlainFile file(path);
  if (!file.fault().empty()) fail(Code::kIo, "data: {} {}", path, file.fault());
  return file.release();
}

// Returns an unlinked file, which disappears with the process, or -1.
int temporary_file(const std::filesystem::path& folder) {
  std::string pattern = (folder / "lockstep-XXXXXX").string();
  const int file = ::mkostemp(pattern.data(), O_CLOEXEC);
  if (file >= 0) ::unlink(pattern.c_str());
  return file;
}

// Reads the text of a file: once from beginning to end, and after that anywhere. The text of a
// compressed file is kept in a temporary file.
class CriteoText {
 public:
  explicit CriteoText(const std::string& path) : path_(path), file_(opened(path)) {
    std::array<char, 2> first{};
    if (read(first, 0) < first.size() || first != std::array{'\x1f', '\x8b'}) return;
    inflated_ = std::make_unique<GzipFile>(path);
    std::error_code wrong;
    const auto folder = std::filesystem::temp_directory_path(wrong);
    if (wrong)
      fail(Code::kIo,
           "data: {} is compressed, and TMPDIR ({}) is no folder to inflate it into: set TMPDIR to "
           "a folder with room",
           path_, wrong.message());
    place_ = folder.string();
    const int file = temporary_file(folder);
    if (file < 0) no_room();
    ::close(std::exchange(file_, file));
  }
  ~CriteoText() { ::close(file_); }
  CriteoText(const CriteoText&) = delete;
  CriteoText& operator=(const CriteoText&) = delete;

  // Reads the bytes after those of the previous call; returns how many there are.
  std::size_t next(std::span<char> out) {
    std::size_t got = 0;
    if (!inflated_) {
      got = read(out, offset_);
    } else {
      got = inflated_->read({reinterpret_cast<std::uint8_t*>(out.data()), out.size()});
      if (inflated_->cut_short())
        fail(Code::kCorrupt, "data: {}: gzip: ends before its checksum", path_);
      keep(out.first(got));
    }
    offset_ += got;
    return got;
  }
  // Reads the bytes from `offset` on; returns how many there are. Thread-safe.
  std::size_t read(std::span<char> out, std::uint64_t offset) const {
    std::size_t done = 0;
    while (done < out.size()) {
      const ssize_t got =
          ::pread(file_, out.data() + done, out.size() - done, off_t(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail(Code::kIo, "data: {}: {}", path_, std::strerror(errno));
      if (got == 0) break;
      done += std::size_t(got);
    }
    return done;
  }
  const std::string& path() const { return path_; }

 private:
  void keep(std::span<const char> text) {
    while (!text.empty()) {
      const ssize_t put = ::write(file_, text.data(), text.size());
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) no_room();
      text = text.subspan(std::size_t(put));
    }
  }
  [[noreturn]] void no_room() const {
    fail(Code::kIo,
         "data: {} is compressed, and cannot be inflated into {}: {}; inflate it yourself, or set "
         "TMPDIR to a folder with more room",
         path_, place_, std::strerror(errno));
  }

  std::string path_;
  int file_;
  std::string place_;                   // folder of the temporary file
  std::unique_ptr<GzipFile> inflated_;  // null: the file is not compressed
  std::uint64_t offset_ = 0;            // offset of the next bytes
};

// Stores where each line begins. One pass has checked the file, so no line is wrong. If the file
// changes later, a read throws or returns the new content.
class CriteoFile final : public Dataset {
 public:
  CriteoFile(const std::string& path, std::size_t buckets) : file_(path), buckets_(buckets) {
    try {
      look();
    } catch (const std::bad_alloc&) {
      fail(Code::kIo, "data: {}: memory for the places of {} lines is not to be had", path,
           starts_.size());
    }
  }
  std::uint64_t size() const override { return starts_.size() - 1; }
  Shape input_shape() const override { return {kClickColumns}; }
  std::size_t target_columns() const override { return 1; }
  std::size_t classes() const override { return 2; }
  void read(std::uint64_t index, std::span<float> input, std::span<float> target) const override {
    std::array<char, kMostLine> bytes;
    const std::size_t length = std::size_t(starts_[index + 1] - starts_[index] - 1);
    if (file_.read(std::span(bytes).first(length), starts_[index]) < length) {
      fail(Code::kCorrupt, "data: {}: line {}: the file has become shorter since it was opened",
           file_.path(), index + 1);
    }
    parse_criteo_line({bytes.data(), length}, file_.path(), index + 1, buckets_, input, target);
  }
  std::string describe() const override {
    return fmt::format("criteo {}: {} of {} numbers and {} ids below {}",
                       std::filesystem::path(file_.path()).filename().string(), size(),
                       kClickNumbers, kClickFields, buckets_);
  }
  std::uint64_t fingerprint() const override { return fingerprint_; }

 private:
  // Passes over the file once, block by block. The rest of a block's last line moves to the front
  // of the next block.
  void look() {
    std::vector<char> block(kReadAtOnce);
    std::uint64_t offset = 0;  // the block's offset in the file
    std::size_t kept = 0;
    std::uint64_t checksum = crc32_z(0, nullptr, 0);
    for (bool whole = false; !whole;) {
      const std::size_t got = file_.next(std::span(block).subspan(kept));
      whole = got < kReadAtOnce - kept;
      checksum = crc32_z(checksum, reinterpret_cast<const Bytef*>(block.data() + kept), got);
      const std::string_view text(block.data(), kept + got);
      std::size_t begin =
          offset == 0 && text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
      if (offset == 0) refuse_known_kind(file_.path(), text.substr(0, kMostLine));
      while (begin < text.size()) {
        const std::size_t end = text.find('\n', begin);
        const bool last = end == std::string_view::npos;
        if ((last ? text.size() : end) - begin > kMostLine) {
          fail(Code::kCorrupt, "data: {}: line {}: longer than {} bytes", file_.path(),
               starts_.size() + 1, kMostLine);
        }
        if (last && !whole) break;
        take(text.substr(begin, last ? end : end - begin), offset + begin);
        begin = last ? text.size() + 1 : end + 1;  // as if the last line ended, too
      }
      kept = begin < text.size() ? text.size() - begin : 0;
      std::memmove(block.data(), block.data() + (text.size() - kept), kept);
      offset += begin;
    }
    if (starts_.empty()) fail(Code::kCorrupt, "data: {}: no lines", file_.path());
    starts_.push_back(behind_);
    fingerprint_ = stream_key(checksum, fmt::format("criteo 1 {} lines, {} bytes, ids below {}",
                                                    size(), offset, buckets_));
  }
  // Checks and adds a line. Empty lines may only be at the end.
  void take(std::string_view line, std::uint64_t offset) {
    if (line.empty() || line == "\r") {
      ended_ = true;
      return;
    }
    if (ended_) {
      fail(Code::kCorrupt, "data: {}: line {} is empty, and others follow it: remove it",
           file_.path(), starts_.size() + 1);
    }
    behind_ = offset + line.size() + 1;
    std::array<float, kClickColumns> input;
    std::array<float, 1> target;
    parse_criteo_line(line, file_.path(), starts_.size() + 1, buckets_, input, target);
    starts_.push_back(offset);
  }

  CriteoText file_;
  std::size_t buckets_;
  bool ended_ = false;
  std::uint64_t behind_ = 0;           // offset after the last line's end
  std::vector<std::uint64_t> starts_;  // starts of all lines, then `behind_`
  std::uint64_t fingerprint_ = 0;
};

}  // namespace

Sets criteo(const std::string& file, std::size_t buckets, const std::string& test) {
  check_buckets(buckets);
  Sets sets;
  sets.train = std::make_shared<CriteoFile>(file, buckets);
  if (!test.empty()) sets.test = std::make_shared<CriteoFile>(test, buckets);
  return sets;
}

}  // namespace lockstep::engine::data
