// SPDX-License-Identifier: MIT
// manifest.json of a checkpoint: what a run needs besides its arrays, the files, and the location
// of each array in them. The first line holds the CRC-32 of all bytes after it, so every single-bit
// error is found before the content is used. Pure functions; thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/checkpoint.h"

namespace lockstep::engine {

struct Manifest {
  // Means that tensor `key` of shard number `shard` holds elements `range` of the array.
  struct Part {
    int shard = 0;
    std::string key;
    Range range;
  };
  struct Array {
    std::string name;
    DType dtype = DType::kFloat32;
    Shape shape;
    std::vector<Part> parts;  // ascending, without gap or overlap
  };
  RunState state;
  std::vector<Shard> shards;
  std::vector<Array> arrays;  // sorted by name
};

inline constexpr int kManifestVersion = 1;
inline constexpr std::uint64_t kMaxManifestBytes = 32 << 20;

// Returns a name like "shard-00002-of-00004.safetensors".
std::string shard_name(int shard, int shards);

// Sorts the parts. Returns the reason if they do not cover the array exactly once, else an empty
// text.
std::string cover_fault(Manifest::Array& array);

// Throws Error(kInvalid) for text in the state that is not UTF-8.
std::string manifest_text(const Manifest& manifest);

// Parses a manifest; `path` is for messages. Throws Error(kCorrupt), or Error(kInvalid) for a
// format version that is newer than this program's.
Manifest parse_manifest(std::string_view text, const std::string& path);

}  // namespace lockstep::engine
