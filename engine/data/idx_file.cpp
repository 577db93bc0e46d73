// SPDX-License-Identifier: MIT
#include "engine/data/idx_file.h"

#include <algorithm>
#include <array>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/data/gzip_file.h"
#include "engine/data/near_miss.h"

namespace lockstep::engine::data {
namespace {

// Deflate makes at most 1032 bytes out of one.
constexpr std::uint64_t kMostInflated = 1032;
// Elements that need more memory than the file's size and this are counted before allocation.
constexpr std::uint64_t kUncounted = std::uint64_t(8) << 20;

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

// Reads exactly the elements that must follow a file's header.
class Elements {
 public:
  Elements(GzipFile& file, std::string name, std::uint64_t announced)
      : file_(file), name_(std::move(name)), announced_(announced) {}

  // Reads all elements through a small buffer.
  void count() {
    std::vector<std::uint8_t> piece(std::size_t(64) << 10);
    std::uint64_t read = 0;
    while (read < announced_) {
      const auto some =
          std::span(piece).first(std::min<std::uint64_t>(piece.size(), announced_ - read));
      const std::size_t got = file_.read(some);
      read += got;
      if (got < some.size()) break;
    }
    check(read);
  }
  std::vector<std::uint8_t> all() {
    std::vector<std::uint8_t> bytes;
    try {
      bytes.resize(announced_);
    } catch (const std::bad_alloc&) {
      fail(Code::kIo, "data: {}: {} bytes of memory are not to be had", name_, announced_);
    }
    check(file_.read(bytes));
    return bytes;
  }

 private:
  void check(std::uint64_t read) {
    if (read < announced_)
      fail(Code::kCorrupt, "data: {}: elements: end after {} of {}", name_, read, announced_);
    // Reading on to the end makes zlib compare its checksum.
    std::array<std::uint8_t, 1> more;
    if (file_.read(more) != 0) {
      fail(Code::kCorrupt, "data: {}: elements: bytes trail after the {} that the header announces",
           name_, announced_);
    }
    if (file_.cut_short()) fail(Code::kCorrupt, "data: {}: gzip: ends before its checksum", name_);
  }
  GzipFile& file_;
  std::string name_;
  std::uint64_t announced_;
};

}  // namespace

IdxFile read_idx_file(const std::filesystem::path& path, int extents) {
  GzipFile file(path);
  const std::string name = path.string();
  std::array<std::uint8_t, 4 + 4 * 4> header_bytes;
  const auto header = std::span(header_bytes).first(std::size_t(4 + 4 * extents));
  const std::size_t got = file.read(header);
  refuse_known_kind(name, {reinterpret_cast<const char*>(header.data()), got});
  if (got < header.size()) {
    fail(Code::kCorrupt, "data: {}: header: ends after {} of {} bytes", name, got, header.size());
  }
  // The bytes are zero, zero, 8 for unsigned bytes, and the number of extents.
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
  Elements elements(file, name, announced);
  if (announced > file.stored() + kUncounted) {
    elements.count();
    file.rewind();
    file.read(header);
  }
  idx.bytes = elements.all();
  return idx;
}

}  // namespace lockstep::engine::data
