// SPDX-License-Identifier: MIT
#include "engine/train/checkpoint.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "engine/train/manifest.h"
#include "engine/train/rounded_read.h"
#include "engine/train/safetensors.h"

namespace lockstep::engine {
namespace {

// What stands behind a folder's name while it is not a checkpoint:
constexpr std::string_view kPartial = ".partial";    // being written
constexpr std::string_view kReplaced = ".replaced";  // whole, set aside for another of its step
constexpr std::string_view kOld = ".old";            // being removed
constexpr std::string_view kManifestFile = "/manifest.json";
constexpr std::string_view kPrefix = "step-";

std::string folder_name(std::int64_t step) {
  return fmt::format("{}{:010}", kPrefix, step);
}

// "step-0000000042.partial" is {42, ".partial"}; nothing for names that are not of this form.
struct FolderName {
  std::int64_t step = 0;
  std::string_view suffix;
};
std::optional<FolderName> read_folder_name(std::string_view text) {
  if (!text.starts_with(kPrefix)) return std::nullopt;
  const std::size_t dot = std::min(text.find('.'), text.size());
  FolderName result{0, text.substr(dot)};
  const auto [end, error] =
      std::from_chars(text.data() + kPrefix.size(), text.data() + dot, result.step);
  if (error != std::errc() || result.step < 0) return std::nullopt;
  if (folder_name(result.step) != text.substr(0, dot)) return std::nullopt;
  return result;
}

// "runs" for "runs/step-0000000042/".
std::string folder_above(const std::string& folder) {
  std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (path.empty() || path == "." || path.filename() == "..") {
    return (path / "..").lexically_normal().string();
  }
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

// A piece that is its whole array is stored under the array's own name and shape; any other as a
// flat tensor NAME@BEGIN, and the array's shape as metadata NAME, "5x5x32".
std::string key_of(const Piece& piece) {
  const bool whole = piece.range == Range{0, piece.shape.elements()};
  return whole ? piece.name : fmt::format("{}@{}", piece.name, piece.range.begin);
}

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

std::optional<Shape> shape_from(std::string_view text) {
  Shape shape;
  if (text == to_string(shape)) return shape;
  while (shape.rank() < Shape::kMaxRank) {
    std::size_t extent = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), extent);
    if (error != std::errc()) return std::nullopt;
    shape.append(extent);
    text.remove_prefix(std::size_t(end - text.data()));
    if (text.empty()) return shape;
    if (text[0] != 'x') return std::nullopt;
    text.remove_prefix(1);
  }
  return std::nullopt;
}

// Adds what one shard holds to the arrays that all shards hold together.
void collect(const Safetensors& file, int shard, const std::string& path,
             std::map<std::string, Manifest::Array>& arrays) {
  for (const auto& [key, entry] : file.tensors) {
    Manifest::Array here{key.substr(0, key.find('@')), entry.dtype, entry.shape, {}};
    Manifest::Part part{shard, key, {0, entry.shape.elements()}};
    if (here.name.size() != key.size()) {
      const auto shape = file.metadata.find(here.name);
      const auto whole = shape == file.metadata.end() ? std::nullopt : shape_from(shape->second);
      std::size_t begin = 0;
      const auto [end, error] =
          std::from_chars(key.data() + here.name.size() + 1, key.data() + key.size(), begin);
      if (!whole || error != std::errc() || end != key.data() + key.size()) {
        fail(Code::kCorrupt, "{}: {} is a piece of an array of unknown shape", path,
             in_quotes(key));
      }
      here.shape = *whole;
      part.range = {begin, begin + part.range.end};
    }
    auto [there, is_new] = arrays.try_emplace(here.name, here);
    Manifest::Array& array = there->second;
    require(array.dtype == here.dtype && array.shape == here.shape,
            "the ranks disagree about {}: {} {} and {} {}", in_quotes(here.name), name(array.dtype),
            to_string(array.shape), name(here.dtype), to_string(here.shape));
    if (is_new || array.shape.elements() > 0) array.parts.push_back(std::move(part));
  }
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

// The manifest of a checkpoint whose files are all there and as long as it says.
Manifest check_sizes(Storage& storage, const std::string& folder) {
  Manifest manifest = read_manifest(storage, folder);
  for (std::size_t i = 0; i < manifest.shards.size(); ++i) {
    const std::string path = shard_path(folder, int(i), manifest);
    if (!storage.exists(path)) fail(Code::kCorrupt, "{} is not there", path);
    const std::uint64_t bytes = storage.size(path);
    if (bytes != manifest.shards[i].bytes) {
      fail(Code::kCorrupt, "{}: {} bytes, but {} were written", path, bytes,
           manifest.shards[i].bytes);
    }
  }
  return manifest;
}

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

// Copies from a checkpoint's parts into pieces of memory; reads each shard's header once.
class Restorer {
 public:
  Restorer(Storage& storage, std::string folder)
      : storage_(storage), folder_(std::move(folder)), manifest_(check_sizes(storage, folder_)) {
    for (const Manifest::Array& array : manifest_.arrays) arrays_[array.name] = &array;
    headers_.resize(manifest_.shards.size());
  }

  void fill(const Piece& piece, std::span<const std::string> missing_is_zero) {
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
    // Parts ascend: begin with the first that reaches into the piece.
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

 private:
  // Where the part's bytes begin in its file; checks that the file agrees with the manifest.
  std::uint64_t data_begin(const Manifest::Array& array, const Manifest::Part& part) {
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

  Storage& storage_;
  std::string folder_;
  Manifest manifest_;
  std::map<std::string_view, const Manifest::Array*> arrays_;
  std::vector<std::optional<Safetensors>> headers_;  // by shard; read when first needed
};

}  // namespace

Checkpoints::Checkpoints(Storage& storage, std::string folder, int keep, Log log)
    : storage_(storage), folder_(std::move(folder)), keep_(keep), log_(std::move(log)) {
  require(!folder_.empty(), "the folder for checkpoints has no name");
  require(keep_ >= 1, "{} checkpoints cannot be kept; at least 1 must be", keep_);
}

std::string Checkpoints::path(std::int64_t step) const {
  return folder_ + "/" + folder_name(step);
}

std::string Checkpoints::found(std::int64_t step) const {
  const std::string aside = path(step) + std::string(kReplaced);
  if (storage_.exists(path(step))) return path(step);
  if (storage_.exists(aside)) return aside;
  fail(Code::kInvalid, "{} holds no checkpoint of step {}", folder_, step);
}

void Checkpoints::remove(const std::string& tree) const {
  try {
    storage_.remove_tree(tree);
  } catch (const Error& error) {
    log_.warning("{}; it is not needed any more", error.what());
  }
}

void Checkpoints::prepare() {
  const std::string trial = path(0) + std::string(kPartial);
  try {
    storage_.make_folder(trial);
    const std::string text = "a trial whether checkpoints can be written here\n";
    storage_.create(trial + "/trial")->write(std::as_bytes(std::span(text)));
    storage_.remove_tree(trial);
  } catch (const Error& error) {
    abandon(0);
    fail(Code::kIo,
         "no checkpoint could be written: {}; give a folder that can be written, on a "
         "disk with room",
         error.what());
  }
}

void Checkpoints::abandon(std::int64_t step) noexcept {
  try {
    storage_.remove_tree(path(step) + std::string(kPartial));
  } catch (const std::exception&) {
    // The error that led here is the one to be told; the next `begin` removes the folder.
  }
}

// Removes what earlier writers left when they died. A folder that was set aside comes back where
// its successor never came.
void Checkpoints::begin(std::int64_t step) {
  require(step >= 0, "there is no checkpoint of step {}", step);
  storage_.make_folder(folder_);
  for (const std::string& entry : storage_.list(folder_)) {
    const auto name = read_folder_name(entry);
    if (!name) continue;
    const std::string tree = folder_ + "/" + entry;
    if (name->suffix == kPartial || name->suffix == kOld) {
      remove(tree);
    } else if (name->suffix == kReplaced && storage_.exists(path(name->step))) {
      remove(tree);
    } else if (name->suffix == kReplaced) {
      storage_.rename(tree, path(name->step));
      storage_.sync_folder(folder_);
    }
  }
  storage_.make_folder(path(step) + std::string(kPartial));
}

Shard Checkpoints::write_shard(std::int64_t step, int rank, int ranks,
                               std::span<const Piece> pieces) {
  require(rank >= 0 && rank < ranks && ranks <= 99999, "rank {} of {} cannot write a shard", rank,
          ranks);
  const std::string folder = path(step) + std::string(kPartial);
  // Listing asks the server of a network file system anew; a remembered "not there" would not.
  storage_.list(folder_);
  if (!storage_.exists(folder)) {
    fail(Code::kIo,
         "{} is not there for rank {}: the folder of checkpoints must be shared by all hosts",
         folder, rank);
  }
  std::vector<TensorSource> tensors;
  std::map<std::string, std::string> shapes;
  std::set<std::string_view> empty;
  for (const Piece& piece : pieces) {
    check_piece(piece);
    const std::size_t elements = piece.shape.elements();
    // An array without elements may come in any number of pieces: it is stored once.
    if (piece.range.empty() && (elements > 0 || !empty.insert(piece.name).second)) continue;
    const bool whole = piece.range.size() == elements;
    if (!whole) shapes[piece.name] = to_string(piece.shape);
    tensors.push_back(
        {key_of(piece), piece.dtype, whole ? piece.shape : Shape{piece.range.size()}, piece.data});
  }
  const auto file = storage_.create(folder + "/" + shard_name(rank, ranks));
  const FileSum sum = write_safetensors(*file, tensors, shapes);
  file->sync();
  return {sum.bytes, sum.crc};
}

void Checkpoints::commit(const RunState& state, std::span<const Shard> shards) {
  const std::string whole = path(state.step), partial = whole + std::string(kPartial);
  Manifest manifest{state, {shards.begin(), shards.end()}, {}};
  require(!shards.empty(), "a checkpoint has at least one shard");
  std::map<std::string, Manifest::Array> arrays;
  storage_.list(partial);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string file = shard_path(partial, int(i), manifest);
    const std::uint64_t bytes = storage_.exists(file) ? storage_.size(file) : 0;
    if (bytes != shards[i].bytes) {
      fail(Code::kIo,
           "{}: {} bytes here, but rank {} wrote {}: the folder of checkpoints must be shared by "
           "all hosts",
           file, bytes, i, shards[i].bytes);
    }
    collect(read_safetensors(storage_, file), int(i), file, arrays);
  }
  for (auto& [name, array] : arrays) {
    const std::string fault = cover_fault(array);
    require(fault.empty(), "the ranks' pieces of {} do not make it whole: {}", in_quotes(name),
            fault);
    manifest.arrays.push_back(std::move(array));
  }
  const std::string text = manifest_text(manifest);
  const std::string final_name = partial + std::string(kManifestFile);
  {
    const auto file = storage_.create(final_name + ".tmp");
    file->write(std::as_bytes(std::span(text)));
    file->sync();
  }
  storage_.rename(final_name + ".tmp", final_name);
  storage_.sync_folder(partial);
  // At every moment one of `whole`, `aside` is there, if there ever was one; and should only the
  // second renaming survive a loss of power, then what it renamed is whole and synced.
  const std::string aside = whole + std::string(kReplaced);
  if (storage_.exists(whole)) {
    storage_.remove_tree(aside);
    storage_.rename(whole, aside);
  }
  storage_.rename(partial, whole);
  storage_.sync_folder(folder_);
  remove(aside);
  prune(state.step);
}

// Keeps the newest keep_ whole ones up to the step `newest`, which was just written. Those that are
// older than all of these go, whole or not; later ones are of a history that was left, and are
// written anew when the run comes there. Whole means here: the manifest is right and all files have
// their size; reading all data for this would cost too much.
void Checkpoints::prune(std::int64_t newest) const {
  try {
    std::vector<std::int64_t> steps;
    for (const std::string& entry : storage_.list(folder_)) {
      const auto name = read_folder_name(entry);
      if (name && name->suffix.empty() && name->step <= newest) steps.push_back(name->step);
    }
    std::sort(steps.rbegin(), steps.rend());
    std::vector<std::string> removed;
    int whole = 0;
    for (const std::int64_t step : steps) {
      if (whole == keep_) {
        const std::string old = path(step) + std::string(kOld);
        storage_.remove_tree(old);
        storage_.rename(path(step), old);
        removed.push_back(old);
        continue;
      }
      try {
        check_sizes(storage_, path(step));
        ++whole;
      } catch (const Error& error) {
        log_.warning("not counted among the checkpoints that are kept: {}", error.what());
      }
    }
    if (!removed.empty()) storage_.sync_folder(folder_);
    for (const std::string& tree : removed) remove(tree);
  } catch (const Error& error) {
    log_.warning("old checkpoints stay: {}", error.what());
  }
}

std::vector<std::int64_t> Checkpoints::steps() {
  std::vector<std::int64_t> result;
  for (const std::string& entry : storage_.list(folder_)) {
    const auto name = read_folder_name(entry);
    if (name && (name->suffix.empty() || name->suffix == kReplaced)) result.push_back(name->step);
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

std::optional<std::int64_t> Checkpoints::newest_whole() {
  std::vector<std::int64_t> all = steps();
  for (auto step = all.rbegin(); step != all.rend(); ++step) {
    try {
      verify(*step);
      return *step;
    } catch (const Error& error) {
      if (error.code() == Code::kInvalid) throw;
      log_.warning("the checkpoint of step {} cannot be used: {}; {}", *step, error.what(),
                   step + 1 == all.rend() ? "there is none before it" : "trying the one before");
    }
  }
  return std::nullopt;
}

std::optional<std::int64_t> Checkpoints::newest() {
  if (storage_.exists(folder_ + std::string(kManifestFile))) {
    fail(Code::kInvalid, "{} is a checkpoint; name the folder above it: {}", folder_,
         folder_above(folder_));
  }
  const std::optional<std::int64_t> step = newest_whole();
  if (step || steps().empty()) return step;
  std::string reason;
  try {
    verify(steps().back());
  } catch (const Error& error) {
    reason = error.what();
  }
  fail(Code::kCorrupt,
       "no whole checkpoint is there ({}): mend it, or give another folder to start afresh",
       reason);
}

void Checkpoints::verify(std::int64_t step) {
  const std::string folder = found(step);
  const Manifest manifest = check_sizes(storage_, folder);
  for (std::size_t i = 0; i < manifest.shards.size(); ++i) {
    check_crc(storage_, shard_path(folder, int(i), manifest), manifest.shards[i]);
  }
}

RunState Checkpoints::read_state(std::int64_t step) {
  return read_manifest(storage_, found(step)).state;
}

std::vector<Checkpoints::ArrayInfo> Checkpoints::arrays(std::int64_t step) {
  std::vector<ArrayInfo> result;
  for (const Manifest::Array& array : read_manifest(storage_, found(step)).arrays) {
    result.push_back({array.name, array.shape, array.dtype});
  }
  return result;
}

void Checkpoints::restore(std::int64_t step, std::span<const Piece> pieces,
                          std::span<const std::string> missing_is_zero) {
  Restorer restorer(storage_, found(step));
  for (const Piece& piece : pieces) restorer.fill(piece, missing_is_zero);
}

}  // namespace lockstep::engine
