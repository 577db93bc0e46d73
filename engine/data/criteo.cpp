// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/random.h"
#include "engine/data/clicks.h"
#include "engine/data/criteo_line.h"

namespace lockstep::engine::data {
namespace {

constexpr std::size_t kMostLine = 4096;  // bytes; a line of the form has about 250
constexpr std::size_t kReadAtOnce = std::size_t(1) << 20;

class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : path_(path) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (!std::filesystem::is_regular_file(status)) fail(Code::kIo, "data: {} is not a file", path);
    file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file_ < 0) fail(Code::kIo, "data: {} cannot be opened: {}", path, std::strerror(errno));
  }
  ~OpenFile() { ::close(file_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  // Bytes from `offset` on, as many as there are. Any thread.
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
  std::string path_;
  int file_ = -1;
};

// Knows where each line begins. The file was looked at once, so it has no line that is wrong; if
// somebody writes into it later, reading says so or gives what stands there now.
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
  // One pass over the file, block by block; what is left of the last line of a block goes to the
  // front of the next.
  void look() {
    std::vector<char> block(kReadAtOnce);
    std::uint64_t offset = 0;  // of the block in the file
    std::size_t kept = 0;
    std::uint64_t checksum = crc32_z(0, nullptr, 0);
    for (bool whole = false; !whole;) {
      const std::size_t got = file_.read(std::span(block).subspan(kept), offset + kept);
      whole = got < kReadAtOnce - kept;
      checksum = crc32_z(checksum, reinterpret_cast<const Bytef*>(block.data() + kept), got);
      const std::string_view text(block.data(), kept + got);
      std::size_t begin = 0;
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
    starts_.push_back(offset);
    fingerprint_ = stream_key(checksum, fmt::format("criteo 1 {} lines, {} bytes, ids below {}",
                                                    size(), offset, buckets_));
  }
  void take(std::string_view line, std::uint64_t offset) {
    std::array<float, kClickColumns> input;
    std::array<float, 1> target;
    parse_criteo_line(line, file_.path(), starts_.size() + 1, buckets_, input, target);
    starts_.push_back(offset);
  }

  OpenFile file_;
  std::size_t buckets_;
  std::vector<std::uint64_t> starts_;  // of each line, and one behind the end of the last
  std::uint64_t fingerprint_ = 0;
};

}  // namespace

Sets criteo(const std::string& file, std::size_t buckets) {
  check_buckets(buckets);
  Sets sets;
  sets.train = std::make_shared<CriteoFile>(file, buckets);
  return sets;
}

}  // namespace lockstep::engine::data
