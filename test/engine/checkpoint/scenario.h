// SPDX-License-Identifier: MIT
// Shared helpers of checkpoint tests: arrays with values derived from a seed, random slicings over
// ranks, and complete saves and restores.
#pragma once
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"

namespace lockstep::test {

// Creates a temporary folder and removes it at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Collects log lines.
class LogLines {
 public:
  engine::Log log();
  bool contain(const std::string& text) const;
  std::string all() const;
  void clear() { lines_.clear(); }

 private:
  std::vector<std::string> lines_;
};

struct NamedArray {
  std::string name;
  engine::Shape shape;
  engine::DType dtype = engine::DType::kFloat32;
  std::vector<std::byte> bytes;
};
using Arrays = std::vector<NamedArray>;

// Returns arrays of several shapes and types, including an empty one and a scalar, with values
// derived from `seed`.
Arrays some_arrays(std::uint64_t seed);
// Returns one array of three numbers: the files are small enough to flip every bit.
Arrays tiny_arrays(std::uint64_t seed);
// Returns arrays of the same names and shapes, with all bytes zero.
Arrays zeros_like(const Arrays& arrays);

// Cuts every array at random places and assigns the parts to `ranks` ranks, some of which may get
// none.
std::vector<std::vector<engine::Piece>> slice(Arrays& arrays, int ranks, std::mt19937_64& random);
std::vector<engine::Piece> whole_pieces(Arrays& arrays);

// Saves a checkpoint: begin, write_shard by each rank, commit. `note` becomes part of the state.
void save(engine::Checkpoints& checkpoints, std::int64_t step, Arrays arrays, int ranks,
          std::mt19937_64& random, const std::string& note = {});
Arrays restored(engine::Checkpoints& checkpoints, std::int64_t step, const Arrays& like);

bool same(const Arrays& a, const Arrays& b);

}  // namespace lockstep::test
