// SPDX-License-Identifier: MIT
// Files of measured costs, so that the next job on the same machines need not measure. Each
// fingerprint has a file `costs-<hash>.json` in one folder. A file is written under another name
// and renamed, so it is whole or absent. A checksum detects damage. Threads and processes may write
// at the same time; one of them wins.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "collectives/topology/topology.h"

namespace lockstep::collectives {

// Returns $XDG_CACHE_HOME/lockstep, else ~/.cache/lockstep, or an empty path if neither variable is
// an absolute path.
std::filesystem::path cache_folder();

// Returns a text of everything that costs depend on: names of hosts, processors, ranks of each
// process with their devices and NUMA nodes, and `other` (the transport, for example).
std::string fingerprint(const Topology& topology, const std::string& other);

class CostCache {
 public:
  explicit CostCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // Returns the file's text for `costs_from`, or nothing if the file cannot be read.
  std::optional<std::string> read(const std::string& fingerprint) const;
  // Returns when the file was written, in local time, "2026-11-28 23:40"; empty if unknown.
  std::string written(const std::string& fingerprint) const;
  // Throws Error(kIo) if the file cannot be written.
  void write(const std::string& fingerprint, const Topology& topology) const;
  std::filesystem::path file(const std::string& fingerprint) const;

 private:
  std::filesystem::path folder_;
};

// Returns `topology` with the costs in a file's text. Throws Error(kInvalid) if the text is
// damaged, of another fingerprint, or of other ranks.
Topology costs_from(const std::string& text, const std::string& fingerprint, Topology topology);

}  // namespace lockstep::collectives
