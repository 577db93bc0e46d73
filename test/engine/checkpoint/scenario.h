// SPDX-License-Identifier: MIT
// What checkpoint tests share: arrays whose values follow from a number, random slicings of them
// over ranks, and saving and restoring them whole.
#pragma once
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"

namespace lockstep::test {

// A folder of its own, removed at the end.
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

// Collects what is logged.
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

// Arrays of several shapes and types, an empty one and a scalar among them; values from `seed`.
Arrays some_arrays(std::uint64_t seed);
// One array of three numbers: small files, for tests that try every bit of them.
Arrays tiny_arrays(std::uint64_t seed);
// The same names and shapes, all bytes zero.
Arrays zeros_like(const Arrays& arrays);

// Cuts every array at random places and deals the parts to `ranks`, some of which may get none.
std::vector<std::vector<engine::Piece>> slice(Arrays& arrays, int ranks, std::mt19937_64& random);
std::vector<engine::Piece> whole_pieces(Arrays& arrays);

// begin, write_shard by each rank, commit; `note` goes into the state.
void save(engine::Checkpoints& checkpoints, std::int64_t step, Arrays arrays, int ranks,
          std::mt19937_64& random, const std::string& note = {});
Arrays restored(engine::Checkpoints& checkpoints, std::int64_t step, const Arrays& like);

bool same(const Arrays& a, const Arrays& b);

}  // namespace lockstep::test
