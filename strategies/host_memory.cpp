// SPDX-License-Identifier: MIT
#include "strategies/host_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "engine/base/error.h"

namespace lockstep::strategies {

using collectives::MappedMemory;

HostMemory::HostMemory(const JobRanks& ranks, std::size_t block, std::size_t control,
                       const std::string& what)
    : local_(ranks.local()), blocks_(local_.size(), nullptr) {
  const std::vector<int> mine = ranks.mine();
  if (mine.size() < local_.size()) {
    take(mine, block, control, what);
  } else {
    own_ = engine::Buffer(block * mine.size() + control);
    for (std::size_t i = 0; i < mine.size(); ++i) blocks_[i] = own_.data() + i * block;
    control_ = own_.data() + block * mine.size();
  }
  // All hosts take part in the exchange, whether they map or not.
  map(ranks, what);
}

// My ranks' blocks; the first process of the host has the control block too.
void HostMemory::take(const std::vector<int>& mine, std::size_t block, std::size_t control,
                      const std::string& what) {
  for (const int rank : mine)
    mapped_.emplace_back(fmt::format("lockstep {}rank {}", what, rank), block);
  if (local_.front() == mine.front()) mapped_.emplace_back("lockstep control", control);
}

// Every process tells where its memory is, a line for each piece; those of one host map it.
void HostMemory::map(const JobRanks& ranks, const std::string& what) {
  std::string addresses;
  for (const MappedMemory& memory : mapped_) addresses += to_text(memory.address()) + "\n";
  const auto all = ranks.bootstrap.all_gather(addresses, what + "memory of the ranks");
  for (std::size_t at = 0; at < local_.size() && !mapped_.empty();) {
    const int process = ranks.process[std::size_t(local_[at])];
    const bool me = process == ranks.bootstrap.process();
    const auto next = [&] {
      return at < local_.size() && ranks.process[std::size_t(local_[at])] == process;
    };
    std::istringstream lines(all[std::size_t(process)]);
    std::size_t piece = 0;
    for (std::string line; std::getline(lines, line); ++piece) {
      std::byte* data = me ? mapped_[piece].data() : nullptr;
      if (!me) {
        peers_.push_back(collectives::map_peer(collectives::mapping_address(line)));
        data = peers_.back().data();
      }
      (next() ? blocks_[at++] : control_) = data;
    }
    engine::invariant(!next(), "a process told of less memory than it has ranks");
  }
  ranks.bootstrap.all_gather("", what + "memory is mapped");
  for (MappedMemory& memory : mapped_) memory.close_file();
}

std::byte* HostMemory::block(int rank) const {
  const auto found = std::lower_bound(local_.begin(), local_.end(), rank);
  engine::invariant(found != local_.end() && *found == rank, "asked for memory of another host");
  return blocks_[std::size_t(found - local_.begin())];
}

}  // namespace lockstep::strategies
