// SPDX-License-Identifier: MIT
#include "engine/checkpoint/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <set>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/quantity.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/safetensors.h"

namespace lockstep::engine {
namespace {

// The suffixes of a folder that is not a checkpoint:
constexpr std::string_view kPartial = ".partial";    // being written
constexpr std::string_view kReplaced = ".replaced";  // whole, being replaced by a new one
constexpr std::string_view kOld = ".old";            // being removed
constexpr std::string_view kPrefix = "step-";

// The pauses before a refused read is retried, because network file systems recover.
constexpr std::chrono::milliseconds kPauses[] = {
    std::chrono::milliseconds(10), std::chrono::milliseconds(50), std::chrono::milliseconds(250)};
constexpr int kMostLooks = 10;  // retries if a run removes checkpoints meanwhile

template <class Read>
auto retry_reading(const Log& log, Read read) {
  for (const std::chrono::milliseconds pause : kPauses) {
    try {
      return read();
    } catch (const Error& error) {
      if (error.code() != Code::kIo) throw;
      log.warning("{}; trying again", error.what());
    }
    std::this_thread::sleep_for(pause);
  }
  return read();
}

// Represents "step-0000000042.partial" as {42, ".partial"}; names of another form give nothing.
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
  if (checkpoint_name(result.step) != text.substr(0, dot)) return std::nullopt;
  return result;
}

// Returns "runs" for "runs/step-0000000042/".
std::string folder_above(const std::string& folder) {
  std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (path.empty() || path == "." || path.filename() == "..") {
    return (path / "..").lexically_normal().string();
  }
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

// Returns the key of a stored piece. A whole array has its own name and shape. Another piece is a
// flat tensor NAME@BEGIN, with the array's shape as metadata NAME, "5x5x32".
std::string key_of(const Piece& piece) {
  const bool whole = piece.range == Range{0, piece.shape.elements()};
  return whole ? piece.name : fmt::format("{}@{}", piece.name, piece.range.begin);
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

// Adds the content of one shard to the arrays of all shards.
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

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("{}{:010}", kPrefix, step);
}

Checkpoints::Checkpoints(Storage& storage, std::string folder, int keep, Log log)
    : storage_(storage), folder_(std::move(folder)), keep_(keep), log_(std::move(log)) {
  require(!folder_.empty(), "the folder for checkpoints has no name");
  require(keep_ >= 1, "{} checkpoints cannot be kept; at least 1 must be", keep_);
}

std::string Checkpoints::path(std::int64_t step) const {
  return folder_ + "/" + checkpoint_name(step);
}

std::string Checkpoints::found(std::int64_t step) const {
  const std::string aside = path(step) + std::string(kReplaced);
  if (storage_.exists(path(step))) return path(step);
  if (storage_.exists(aside)) return aside;
  fail(Code::kInvalid, "{} holds no checkpoint of step {}", folder_, step);
}

bool Checkpoints::holds(std::int64_t step) const {
  return storage_.exists(path(step)) || storage_.exists(path(step) + std::string(kReplaced));
}

void Checkpoints::remove(const std::string& tree) const {
  try {
    storage_.remove_tree(tree);
  } catch (const Error& error) {
    log_.warning("{}; it is not needed any more", error.what());
  }
}

void Checkpoints::prepare(std::uint64_t bytes, std::int64_t saves) {
  const std::string trial = path(0) + std::string(kPartial);
  try {
    storage_.make_folder(folder_);
    remove_leftovers();
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
  bytes_ = bytes;
  require_room(saves);
}

// A save without room removes the oldest first, so at most max(2, keep) exist at the same time.
void Checkpoints::require_room(std::int64_t saves) {
  if (bytes_ == 0 || saves == 0) return;
  const std::int64_t there = std::int64_t(steps().size());
  const std::uint64_t room = storage_.room(folder_);
  const auto more = [&](int keep) {
    return std::max<std::int64_t>(0, std::min<std::int64_t>(saves, std::max(2, keep) - there));
  };
  const auto fits = [&](int keep) { return room / bytes_ >= std::uint64_t(more(keep)); };
  if (fits(keep_)) return;
  int keep = keep_;
  while (keep > 0 && !fits(keep)) --keep;
  const Error error(
      Code::kIo,
      fmt::format(
          "no room for checkpoints in {}: {} are free, and {} more of {} each are needed to "
          "keep {}; make room,{} give a folder on another disk{}",
          folder_, bytes_text(double(room)), more(keep_), bytes_text(double(bytes_)), keep_,
          keep > 0 ? "" : " or", keep > 0 ? fmt::format(", or keep {} at most", keep) : ""));
  throw error.about(keep > 0 ? Option::kKeep : Option::kNone);
}

void Checkpoints::abandon(std::int64_t step) noexcept {
  try {
    storage_.remove_tree(path(step) + std::string(kPartial));
  } catch (const std::exception&) {
    // The next `begin` removes the folder, and the original error is the one to report.
  }
}

void Checkpoints::begin(std::int64_t step) {
  require(step >= 0, "there is no checkpoint of step {}", step);
  storage_.make_folder(folder_);
  remove_leftovers();
  if (bytes_ > 0 && storage_.room(folder_) < bytes_) prune(step - 1, std::max(1, keep_ - 1));
  storage_.make_folder(path(step) + std::string(kPartial));
}

// Removes what dead writers left. Restores a folder that was set aside if its successor is absent.
void Checkpoints::remove_leftovers() {
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
}

Shard Checkpoints::write_shard(std::int64_t step, int rank, int ranks,
                               std::span<const Piece> pieces) {
  require(rank >= 0 && rank < ranks && ranks <= 99999, "rank {} of {} cannot write a shard", rank,
          ranks);
  const std::string folder = path(step) + std::string(kPartial);
  // Listing makes a network file system ask its server again, instead of using a cached "not
  // found".
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
    // An array without elements may have any number of pieces, and is stored once.
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
  // At every moment one of `whole` and `aside` exists, if there ever was one. If only the second
  // rename survives a power loss, the folder that it renamed is whole and synced.
  const std::string aside = whole + std::string(kReplaced);
  if (storage_.exists(whole)) {
    storage_.remove_tree(aside);
    storage_.rename(whole, aside);
  }
  storage_.rename(partial, whole);
  storage_.sync_folder(folder_);
  remove(aside);
  bytes_ = 0;
  for (const Shard& shard : shards) bytes_ += shard.bytes;
  verified_.insert(state.step);
  prune(state.step, keep_);
}

// Keeps the newest `keep` whole checkpoints up to step `newest` and removes all that are older,
// whole or not. Later ones belong to an abandoned history, and are rewritten when the run gets
// there. Here, whole means a correct manifest and files of the right size, because reading all data
// would cost too much. Therefore nothing is removed unless one checkpoint stays whose data this run
// has verified.
void Checkpoints::prune(std::int64_t newest, int keep) const {
  try {
    std::vector<std::int64_t> steps;
    for (const std::string& entry : storage_.list(folder_)) {
      const auto name = read_folder_name(entry);
      if (name && name->suffix.empty() && name->step <= newest) steps.push_back(name->step);
    }
    std::sort(steps.rbegin(), steps.rend());
    std::vector<std::string> removed;
    int whole = 0;
    bool verified = false;
    for (const std::int64_t step : steps) {
      if (whole >= keep && verified) {
        const std::string old = path(step) + std::string(kOld);
        storage_.remove_tree(old);
        storage_.rename(path(step), old);
        removed.push_back(old);
        continue;
      }
      try {
        CheckpointReader(storage_, path(step));
        ++whole;
        verified = verified || verified_.contains(step);
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

// Calls `look` until it returns true; false says that a run has removed what it looked at.
template <class Look>
void Checkpoints::look_again(Look look) const {
  for (int tries = 0; tries < kMostLooks; ++tries)
    if (look()) return;
  fail(Code::kIo,
       "the run that saves in {} removes checkpoints faster than they can be read: wait until it "
       "has "
       "ended, or let that run keep more",
       folder_);
}

std::optional<std::int64_t> Checkpoints::newest_whole() {
  std::optional<std::int64_t> found;
  look_again([&] {
    std::vector<std::int64_t> all = retry_reading(log_, [&] { return steps(); });
    if (all.empty()) all = steps();  // a listing may miss a concurrent rename
    for (auto step = all.rbegin(); step != all.rend(); ++step) {
      try {
        verify(*step);
        found = *step;
        return true;
      } catch (const Error& error) {
        if (!holds(*step)) return false;
        if (error.code() == Code::kIo) {
          fail(Code::kIo,
               "{}; the checkpoint of step {} may be intact, so no older one is used: start again, "
               "or remove {}",
               error.what(), *step, path(*step));
        }
        if (error.code() != Code::kCorrupt) throw;
        log_.warning("the checkpoint of step {} cannot be used: {}; {}", *step, error.what(),
                     step + 1 == all.rend() ? "there is none before it" : "trying the one before");
      }
    }
    return true;
  });
  return found;
}

std::optional<std::int64_t> Checkpoints::newest() {
  const std::string manifest = folder_ + std::string(kManifestFile);
  if (retry_reading(log_, [&] { return storage_.exists(manifest); })) {
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
       "no whole checkpoint is there ({}): remove the folder or give another one to start afresh",
       reason);
}

bool Checkpoints::use_newest(const std::function<void(std::int64_t)>& use) {
  std::optional<std::int64_t> step;
  look_again([&] {
    step = newest();
    if (!step) return true;
    try {
      use(*step);
    } catch (const Error&) {
      if (holds(*step)) throw;
      return false;
    }
    return true;
  });
  return step.has_value();
}

void Checkpoints::verify(std::int64_t step) {
  retry_reading(log_, [&] { CheckpointReader(storage_, found(step)).check_sums(); });
  verified_.insert(step);
}

RunState Checkpoints::read_state(std::int64_t step) {
  return retry_reading(log_, [&] { return read_manifest(storage_, found(step)).state; });
}

std::vector<Checkpoints::ArrayInfo> Checkpoints::arrays(std::int64_t step) {
  std::vector<ArrayInfo> result;
  const Manifest manifest =
      retry_reading(log_, [&] { return read_manifest(storage_, found(step)); });
  for (const Manifest::Array& array : manifest.arrays)
    result.push_back({array.name, array.shape, array.dtype});
  return result;
}

void Checkpoints::restore(std::int64_t step, std::span<const Piece> pieces,
                          std::span<const std::string> missing_is_zero) {
  retry_reading(log_, [&] {
    CheckpointReader reader(storage_, found(step));
    for (const Piece& piece : pieces) reader.fill(piece, missing_is_zero);
  });
}

}  // namespace lockstep::engine
