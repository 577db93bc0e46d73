// SPDX-License-Identifier: MIT
// The memory that ranks of one host read and write of each other: one block a rank, of one size,
// and one control block for all, which a Team needs. Plain memory where this process has the host
// for itself, else memory that its processes map from each other. Zeroed, each block by the process
// of its rank; aligned to 4096 bytes, from 4 MiB on to 2 MiB. Freed with this object, which whoever
// uses the blocks must not outlive; what others have mapped of it stays theirs.
#pragma once
#include <string>
#include <vector>

#include "collectives/job/job_ranks.h"
#include "collectives/memory/mapped_memory.h"
#include "engine/device/buffer.h"

namespace lockstep::collectives {

class HostMemory {
 public:
  // Collective, for all processes of the job. `block`: bytes of each, a multiple of 4096;
  // `control`: bytes. `what` stands in front in errors: "buckets: ". Throws Error(kIo) where there
  // is no memory for all processes of a host or it cannot be mapped, on all processes where on one;
  // and what the bootstrap throws.
  HostMemory(const JobRanks& ranks, std::size_t block, std::size_t control,
             const std::string& what);

  const std::vector<int>& local() const { return local_; }  // ranks of this host
  std::byte* block(int rank) const;                         // of a rank of this host
  std::byte* control() const { return control_; }

 private:
  void take(const JobRanks& ranks, std::size_t block, std::size_t control, const std::string& what);
  void map(const JobRanks& ranks, const std::vector<std::string>& addresses);

  std::vector<int> local_;
  std::vector<std::byte*> blocks_;  // of the ranks of this host
  std::byte* control_ = nullptr;
  engine::Buffer own_;                 // one process: all blocks and the control block
  std::vector<MappedMemory> mapped_;   // several: of my ranks, then perhaps control
  std::vector<engine::Buffer> peers_;  // of theirs
};

}  // namespace lockstep::collectives
