// SPDX-License-Identifier: MIT
#include "engine/checkpoint/checkpoint_reader.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/error.h"
#include "engine/checkpoint/rounded_read.h"

namespace lockstep::engine {
namespace {

void check_crc(Storage& storage, const std::string& path, const Shard& shard) {
  std::vector<std::byte> block(
      std::size_t(std::min<std::uint64_t>(std::uint64_t{1} << 20, shard.bytes)));
  std::uint32_t crc = 0;
  for (std::uint64_t at = 0; at < shard.bytes; at += block.size()) {
    const auto part = std::span(block).first(
        std::size_t(std::min<std::uint64_t>(block.size(), shard.bytes - at)));
    storage.read(path, at, part);
    crc = std::uint32_t(crc32_z(crc, reinterpret_cast<const Bytef*>(part.data()), part.size()));
  }
  if (crc != shard.crc) {
    fail(Code::kCorrupt, "{}: its checksum is {:08x}, but {:08x} was written: it was damaged", path,
         crc, shard.crc);
  }
}

}  // namespace

void check_piece(const Piece& piece) {
  require(!piece.name.empty() && piece.name.find('@') == std::string::npos,
          "an array of a checkpoint may not be named {}: empty, or with an '@'",
          in_quotes(piece.name));
  const auto [begin, end] = piece.range;
  require(begin <= end && end <= piece.shape.elements(),
          "elements {} to {} of {} are not within its shape {}", begin, end, in_quotes(piece.name),
          to_string(piece.shape));
  require(piece.data != nullptr || piece.range.empty(), "the piece of {} has no memory",
          in_quotes(piece.name));
}

Manifest read_manifest(Storage& storage, const std::string& folder) {
  const std::string path = folder + std::string(kManifestFile);
  if (!storage.exists(path)) fail(Code::kCorrupt, "{} is not there", path);
  const std::uint64_t bytes = storage.size(path);
  if (bytes > kMaxManifestBytes) {
    fail(Code::kCorrupt, "{}: {} bytes; at most {} are possible", path, bytes, kMaxManifestBytes);
  }
  std::string text(std::size_t(bytes), '\0');
  storage.read(path, 0, std::as_writable_bytes(std::span(text)));
  return parse_manifest(text, path);
}

std::string shard_path(const std::string& folder, int shard, const Manifest& manifest) {
  return folder + "/" + shard_name(shard, int(manifest.shards.size()));
}

CheckpointReader::CheckpointReader(Storage& storage, std::string folder)
    : storage_(storage), folder_(std::move(folder)), manifest_(read_manifest(storage, folder_)) {
  for (std::size_t i = 0; i < manifest_.shards.size(); ++i) {
    const std::string path = shard_path(folder_, int(i), manifest_);
    if (!storage.exists(path)) fail(Code::kCorrupt, "{} is not there", path);
    const std::uint64_t bytes = storage.size(path);
    if (bytes != manifest_.shards[i].bytes) {
      fail(Code::kCorrupt, "{}: {} bytes, but {} were written", path, bytes,
           manifest_.shards[i].bytes);
    }
  }
  for (const Manifest::Array& array : manifest_.arrays) arrays_[array.name] = &array;
  headers_.resize(manifest_.shards.size());
}

void CheckpointReader::check_sums() const {
  for (std::size_t i = 0; i < manifest_.shards.size(); ++i)
    check_crc(storage_, shard_path(folder_, int(i), manifest_), manifest_.shards[i]);
}

void CheckpointReader::fill(const Piece& piece, std::span<const std::string> missing_is_zero) {
  check_piece(piece);
  const auto found = arrays_.find(piece.name);
  const std::size_t width = size_of(piece.dtype);
  if (found == arrays_.end()) {
    const bool zero =
        std::any_of(missing_is_zero.begin(), missing_is_zero.end(),
                    [&](const std::string& prefix) { return piece.name.starts_with(prefix); });
    require(zero, "{} holds no array {}", folder_, in_quotes(piece.name));
    if (!piece.range.empty()) std::memset(piece.data, 0, piece.range.size() * width);
    return;
  }
  const Manifest::Array& array = *found->second;
  const bool rounds = piece.dtype != array.dtype && computed_in(piece.dtype) == array.dtype;
  require(array.shape == piece.shape && (array.dtype == piece.dtype || rounds),
          "{} holds {} as {} {}, but {} {} is wanted", folder_, in_quotes(piece.name),
          name(array.dtype), to_string(array.shape), name(piece.dtype), to_string(piece.shape));
  // Parts ascend, so this is the first that reaches into the piece.
  auto part = std::upper_bound(
      array.parts.begin(), array.parts.end(), piece.range.begin,
      [](std::size_t begin, const Manifest::Part& p) { return begin < p.range.end; });
  for (; part != array.parts.end() && part->range.begin < piece.range.end; ++part) {
    const Range both{std::max(part->range.begin, piece.range.begin),
                     std::min(part->range.end, piece.range.end)};
    if (both.empty()) continue;
    const std::uint64_t at =
        data_begin(array, *part) + (both.begin - part->range.begin) * size_of(array.dtype);
    const std::string path = shard_path(folder_, part->shard, manifest_);
    std::byte* const to = piece.data + (both.begin - piece.range.begin) * width;
    if (rounds) {
      read_rounded(storage_, path, at, piece.dtype, both.size(), to);
    } else {
      storage_.read(path, at, {to, both.size() * width});
    }
  }
}

// Returns the offset of the part's bytes in its file. Checks that the file agrees with the
// manifest.
std::uint64_t CheckpointReader::data_begin(const Manifest::Array& array,
                                           const Manifest::Part& part) {
  const std::string path = shard_path(folder_, part.shard, manifest_);
  auto& header = headers_[std::size_t(part.shard)];
  if (!header) header = read_safetensors(storage_, path);
  const auto found = header->tensors.find(part.key);
  if (found == header->tensors.end() || found->second.dtype != array.dtype ||
      found->second.shape.elements() != part.range.size()) {
    fail(Code::kCorrupt, "{}: {} is not as the manifest says", path, in_quotes(part.key));
  }
  return found->second.begin;
}

}  // namespace lockstep::engine
