// SPDX-License-Identifier: MIT
#include "test/engine/checkpoint/scenario.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

namespace lockstep::test {

using engine::DType;
using engine::Piece;
using engine::Range;
using engine::Shape;

TemporaryFolder::TemporaryFolder() {
  // Prefers a folder in memory if there is one: a thousand syncs are slow on a disk.
  const std::filesystem::path memory = "/dev/shm";
  const bool there = ::access(memory.c_str(), W_OK) == 0;
  std::string pattern =
      ((there ? memory : std::filesystem::temp_directory_path()) / "lockstep-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

engine::Log LogLines::log() {
  return engine::Log("", engine::Log::Level::kInfo,
                     [this](engine::Log::Level, std::string_view l) { lines_.emplace_back(l); });
}

bool LogLines::contain(const std::string& text) const {
  return std::any_of(lines_.begin(), lines_.end(),
                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

std::string LogLines::all() const {
  std::string text;
  for (const std::string& line : lines_) text += line + "\n";
  return text;
}

namespace {

NamedArray make(std::string name, Shape shape, DType dtype, std::mt19937_64& random) {
  NamedArray array{std::move(name), shape, dtype, {}};
  array.bytes.resize(shape.elements() * size_of(dtype));
  for (std::byte& byte : array.bytes) byte = std::byte(random());
  return array;
}

}  // namespace

Arrays some_arrays(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Arrays arrays;
  arrays.push_back(make("conv1.weight", {8, 3, 3, 2}, DType::kFloat32, random));
  arrays.push_back(make("conv1.bias", {8}, DType::kFloat32, random));
  arrays.push_back(make("dense/\xc3\xa4.weight", {5, 7}, DType::kFloat64, random));
  arrays.push_back(make("count", {}, DType::kInt64, random));
  arrays.push_back(make("labels", {11}, DType::kInt32, random));
  arrays.push_back(make("nothing", {4, 0, 2}, DType::kFloat32, random));
  arrays.push_back(make("half", {3}, DType::kFloat16, random));
  arrays.push_back(make("upper half", {5}, DType::kBFloat16, random));
  return arrays;
}

Arrays tiny_arrays(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Arrays arrays;
  arrays.push_back(make("w", {3}, DType::kFloat32, random));
  return arrays;
}

Arrays zeros_like(const Arrays& arrays) {
  Arrays zeros = arrays;
  for (NamedArray& array : zeros) std::fill(array.bytes.begin(), array.bytes.end(), std::byte{0});
  return zeros;
}

std::vector<std::vector<Piece>> slice(Arrays& arrays, int ranks, std::mt19937_64& random) {
  std::vector<std::vector<Piece>> pieces(static_cast<std::size_t>(ranks));
  for (NamedArray& array : arrays) {
    const std::size_t elements = array.shape.elements();
    std::vector<std::size_t> cuts{0, elements};
    for (std::size_t n = random() % 4; n > 0; --n) cuts.push_back(random() % (elements + 1));
    std::sort(cuts.begin(), cuts.end());
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const Range range{cuts[i], cuts[i + 1]};
      pieces[random() % std::size_t(ranks)].push_back(
          {array.name, array.shape, array.dtype, range,
           array.bytes.data() + range.begin * size_of(array.dtype)});
    }
  }
  for (auto& mine : pieces) std::shuffle(mine.begin(), mine.end(), random);
  return pieces;
}

std::vector<Piece> whole_pieces(Arrays& arrays) {
  std::vector<Piece> pieces;
  for (NamedArray& array : arrays) {
    pieces.push_back(
        {array.name, array.shape, array.dtype, {0, array.shape.elements()}, array.bytes.data()});
  }
  return pieces;
}

void save(engine::Checkpoints& checkpoints, std::int64_t step, Arrays arrays, int ranks,
          std::mt19937_64& random, const std::string& note) {
  const auto pieces = slice(arrays, ranks, random);
  engine::RunState state;
  state.step = step;
  state.replicas = ranks;
  if (!note.empty()) state.notes["note"] = note;
  checkpoints.begin(step);
  std::vector<engine::Shard> shards;
  for (int rank = 0; rank < ranks; ++rank) {
    shards.push_back(checkpoints.write_shard(step, rank, ranks, pieces[std::size_t(rank)]));
  }
  checkpoints.commit(state, shards);
}

Arrays restored(engine::Checkpoints& checkpoints, std::int64_t step, const Arrays& like) {
  Arrays arrays = zeros_like(like);
  checkpoints.restore(step, whole_pieces(arrays));
  return arrays;
}

bool same(const Arrays& a, const Arrays& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.name == y.name && x.bytes == y.bytes;
  });
}

}  // namespace lockstep::test
