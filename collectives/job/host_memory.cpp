// SPDX-License-Identifier: MIT
#include "collectives/job/host_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <sstream>

#include "collectives/bootstrap/outcome.h"
#include "collectives/topology/machine.h"
#include "engine/base/error.h"

namespace lockstep::collectives {

namespace {

// Throws if a host lacks memory. Its processes map what all of them allocate, and each alone might
// find room for its own. So they compare before they allocate: all see the same numbers and come to
// the same answer.
void require_room(const JobRanks& ranks, std::size_t block, std::size_t control,
                  const std::string& what) {
  const std::vector<int> mine = ranks.mine(), local = ranks.local();
  const bool maps = mine.size() < local.size();
  const double wanted =
      double(block) * double(mine.size()) + (local.front() == mine.front() ? double(control) : 0.0);
  const auto all = ranks.bootstrap.all_gather(
      maps ? fmt::format("{:.0f} {}", wanted, available_memory()) : "0 0",
      what + "room for the ranks");
  struct Host {
    double wanted = 0, available = std::numeric_limits<double>::max();
    int processes = 0;
  };
  std::map<int, Host> hosts;
  for (std::size_t rank = 0; rank < ranks.process.size(); ++rank) {
    const int process = ranks.process[rank];
    if (rank > 0 && ranks.process[rank - 1] == process) continue;
    double bytes = 0, available = 0;
    std::istringstream(all[std::size_t(process)]) >> bytes >> available;
    Host& host = hosts[ranks.host[rank]];
    host.wanted += bytes;
    host.available = std::min(host.available, available);
    ++host.processes;
  }
  for (const auto& [number, host] : hosts)
    if (host.wanted > host.available)
      engine::fail(engine::Code::kIo,
                   "{}no {:.0f} bytes of shared memory for {} processes of a host: {:.0f} are "
                   "available",
                   what, host.wanted, host.processes, host.available);
}

}  // namespace

// All hosts take part in the exchanges, even if they do not map.
HostMemory::HostMemory(const JobRanks& ranks, std::size_t block, std::size_t control,
                       const std::string& what)
    : local_(ranks.local()), blocks_(local_.size(), nullptr) {
  require_room(ranks, block, control, what);
  const auto addresses = all_or_none(ranks.bootstrap, what + "memory of the ranks", [&] {
    take(ranks, block, control, what);
    std::string mine;
    for (const MappedMemory& memory : mapped_) mine += to_text(memory.address()) + "\n";
    return mine;
  });
  all_or_none(ranks.bootstrap, what + "memory is mapped", [&] {
    map(ranks, addresses);
    return std::string();
  });
  for (MappedMemory& memory : mapped_) memory.close_file();
}

// Allocates the blocks of this process's ranks; on the first process of the host also the control
// block.
void HostMemory::take(const JobRanks& ranks, std::size_t block, std::size_t control,
                      const std::string& what) {
  const std::vector<int> mine = ranks.mine();
  if (mine.size() == local_.size()) {
    own_ = engine::Buffer(block * mine.size() + control);
    for (std::size_t i = 0; i < mine.size(); ++i) blocks_[i] = own_.data() + i * block;
    control_ = own_.data() + block * mine.size();
    return;
  }
  for (const int rank : mine)
    mapped_.emplace_back(fmt::format("lockstep {}rank {}", what, rank), block);
  if (local_.front() == mine.front()) mapped_.emplace_back("lockstep control", control);
}

// Maps the memory of this host's processes. Every process has sent its addresses, one line per
// piece.
void HostMemory::map(const JobRanks& ranks, const std::vector<std::string>& addresses) {
  for (std::size_t at = 0; at < local_.size() && !mapped_.empty();) {
    const int process = ranks.process[std::size_t(local_[at])];
    const bool me = process == ranks.bootstrap.process();
    const auto next = [&] {
      return at < local_.size() && ranks.process[std::size_t(local_[at])] == process;
    };
    std::istringstream lines(addresses[std::size_t(process)]);
    std::size_t piece = 0;
    for (std::string line; std::getline(lines, line); ++piece) {
      std::byte* data = me ? mapped_[piece].data() : nullptr;
      if (!me) {
        peers_.push_back(map_peer(mapping_address(line)));
        data = peers_.back().data();
      }
      (next() ? blocks_[at++] : control_) = data;
    }
    engine::invariant(!next(), "a process told of less memory than it has ranks");
  }
}

std::byte* HostMemory::block(int rank) const {
  const auto found = std::lower_bound(local_.begin(), local_.end(), rank);
  engine::invariant(found != local_.end() && *found == rank, "asked for memory of another host");
  return blocks_[std::size_t(found - local_.begin())];
}

}  // namespace lockstep::collectives
