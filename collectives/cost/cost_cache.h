// SPDX-License-Identifier: MIT
// Measured costs in a file, so that the next job on the same machines need not measure. A file for
// each fingerprint, `costs-<hash>.json` in one folder; written under another name and renamed, so
// that it is whole or absent; with a checksum, so that a damaged one is noticed. Any thread, any
// process: of several that write, one wins.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "collectives/topology/topology.h"

namespace lockstep::collectives {

// $XDG_CACHE_HOME/lockstep, else ~/.cache/lockstep; empty where neither variable says an absolute
// path.
std::filesystem::path cache_folder();

// All that costs depend on: names of hosts, processors, ranks of each process, with their
// devices and NUMA nodes, and
// `other`: transport, ... A text.
std::string fingerprint(const Topology& topology, const std::string& other);

class CostCache {
 public:
  explicit CostCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // The file's text, to be handed to `costs_from`; none where no file can be read.
  std::optional<std::string> read(const std::string& fingerprint) const;
  // Throws Error(kIo) where that cannot be.
  void write(const std::string& fingerprint, const Topology& topology) const;
  std::filesystem::path file(const std::string& fingerprint) const;

 private:
  std::filesystem::path folder_;
};

// `topology` with the costs that a file's text holds. Throws Error(kInvalid) where the text is
// damaged, of another fingerprint, or of other hosts.
Topology costs_from(const std::string& text, const std::string& fingerprint, Topology topology);

}  // namespace lockstep::collectives
