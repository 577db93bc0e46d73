// SPDX-License-Identifier: MIT
// Reads one checkpoint folder. Throws Error(kCorrupt) if a file differs from the manifest, and
// Error(kIo) if the system refuses to read, which says nothing about the file. Single-threaded.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/storage.h"

namespace lockstep::engine {

inline constexpr std::string_view kManifestFile = "/manifest.json";  // follows the folder's path

std::string shard_path(const std::string& folder, int shard, const Manifest& manifest);
Manifest read_manifest(Storage& storage, const std::string& folder);
// Throws Error(kInvalid) for a piece that no checkpoint can hold.
void check_piece(const Piece& piece);

class CheckpointReader {
 public:
  // Reads the manifest and compares the sizes of all files with it. The storage must outlive the
  // reader.
  CheckpointReader(Storage& storage, std::string folder);
  CheckpointReader(const CheckpointReader&) = delete;
  CheckpointReader& operator=(const CheckpointReader&) = delete;
  void check_sums() const;  // reads all files
  // See Checkpoints::restore. Reads each shard's header once.
  void fill(const Piece& piece, std::span<const std::string> missing_is_zero);

 private:
  std::uint64_t data_begin(const Manifest::Array& array, const Manifest::Part& part);
  Storage& storage_;
  std::string folder_;
  Manifest manifest_;
  std::map<std::string_view, const Manifest::Array*> arrays_;
  std::vector<std::optional<Safetensors>> headers_;  // by shard; read when first needed
};

}  // namespace lockstep::engine
