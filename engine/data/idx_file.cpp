// SPDX-License-Identifier: MIT
#include "engine/data/idx_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <system_error>

#include "engine/base/error.h"

namespace lockstep::engine::data {
namespace {

// Deflate makes at most 1032 bytes out of one.
constexpr std::uint64_t kMostInflated = 1032;

// The bytes of a file, inflated where it is compressed (zlib looks at the first two bytes).
class Bytes {
 public:
  explicit Bytes(const std::filesystem::path& path) : path_(path.string()) {
    std::error_code error;
    const std::filesystem::file_status status = std::filesystem::status(path, error);
    if (!std::filesystem::is_regular_file(status)) {
      fail(Code::kIo, "data: {} is not a file", path_);
    }
    stored_ = std::filesystem::file_size(path, error);
    if (error) fail(Code::kIo, "data: {}: {}", path_, error.message());
    errno = 0;
    file_.reset(gzopen(path_.c_str(), "rb"));
    if (!file_) {
      fail(Code::kIo, "data: {} cannot be opened: {}", path_,
           errno ? std::strerror(errno) : "no memory");
    }
  }

  std::uint64_t stored() const { return stored_; }  // bytes of the file
  bool compressed() const { return gzdirect(file_.get()) == 0; }

  bool cut_short() const {  // a compressed file that ended in the middle
    int code = Z_OK;
    gzerror(file_.get(), &code);
    return code == Z_BUF_ERROR;
  }

  // Fills `out` as far as the file goes; the number of bytes.
  std::size_t read(std::span<std::uint8_t> out) {
    std::size_t done = 0;
    while (done < out.size()) {
      const std::size_t piece = std::min<std::size_t>(out.size() - done, 1u << 30);
      const int got = gzread(file_.get(), out.data() + done, unsigned(piece));
      int code = Z_OK;
      const char* message = gzerror(file_.get(), &code);
      if (code == Z_ERRNO) fail(Code::kIo, "data: {}: {}", path_, std::strerror(errno));
      if (code == Z_BUF_ERROR) return done + std::size_t(std::max(got, 0));  // the file ends early
      if (got < 0) fail(Code::kCorrupt, "data: {}: gzip: {}", path_, message);
      if (got == 0) break;
      done += std::size_t(got);
    }
    return done;
  }

 private:
  struct Close {
    void operator()(gzFile_s* file) const { gzclose_r(file); }
  };
  std::string path_;
  std::uint64_t stored_ = 0;
  std::unique_ptr<gzFile_s, Close> file_;
};

std::uint32_t big_endian(std::span<const std::uint8_t> b) {
  return std::uint32_t(b[0]) << 24 | std::uint32_t(b[1]) << 16 | std::uint32_t(b[2]) << 8 | b[3];
}

std::string joined(const std::vector<std::uint32_t>& extents) {
  std::string text;
  for (const std::uint32_t extent : extents) {
    text += (text.empty() ? "" : "x") + std::to_string(extent);
  }
  return text;
}

}  // namespace

IdxFile read_idx_file(const std::filesystem::path& path, int extents) {
  Bytes file(path);
  const std::string name = path.string();
  std::array<std::uint8_t, 4 + 4 * 4> header_bytes;
  const auto header = std::span(header_bytes).first(std::size_t(4 + 4 * extents));
  const std::size_t got = file.read(header);
  if (got < header.size()) {
    fail(Code::kCorrupt, "data: {}: header: ends after {} of {} bytes", name, got, header.size());
  }
  // Zero, zero, 8 for unsigned bytes, the number of extents.
  const std::uint32_t magic = big_endian(header), wanted = 0x800u + std::uint32_t(extents);
  if (magic != wanted) {
    fail(Code::kCorrupt, "data: {}: magic: 0x{:08x}, should be 0x{:08x}", name, magic, wanted);
  }
  IdxFile idx;
  std::uint64_t announced = 1;
  for (int i = 0; i < extents; ++i) {
    const std::uint32_t extent = big_endian(header.subspan(std::size_t(4 + 4 * i)));
    idx.extents.push_back(extent);
    if (extent != 0 &&
        announced > std::uint64_t(std::numeric_limits<std::int64_t>::max()) / extent) {
      fail(Code::kCorrupt, "data: {}: extents: more elements than 63 bits count", name);
    }
    announced *= extent;
  }
  const std::uint64_t needed = announced + header.size();
  if (file.compressed() ? announced > file.stored() * kMostInflated : needed != file.stored()) {
    fail(Code::kCorrupt, "data: {}: size: header and {} elements need {} bytes, the file has {}{}",
         name, joined(idx.extents), needed, file.stored(), file.compressed() ? " compressed" : "");
  }
  try {
    idx.bytes.resize(announced);
  } catch (const std::bad_alloc&) {
    fail(Code::kIo, "data: {}: {} bytes of memory are not to be had", name, announced);
  }
  const std::size_t read = file.read(idx.bytes);
  if (read < announced) {
    fail(Code::kCorrupt, "data: {}: elements: end after {} of {}", name, read, announced);
  }
  // Reading on to the end lets zlib compare its checksum.
  std::array<std::uint8_t, 1> more;
  if (file.read(more) != 0) {
    fail(Code::kCorrupt, "data: {}: elements: bytes trail after the {} that the header announces",
         name, announced);
  }
  if (file.cut_short()) fail(Code::kCorrupt, "data: {}: gzip: ends before its checksum", name);
  return idx;
}

}  // namespace lockstep::engine::data
