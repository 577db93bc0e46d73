// SPDX-License-Identifier: MIT
// Memory in which the ranks of one host read and write each other's data. It has one block per
// rank, all of one size, and one control block for all, which a Team needs. It is plain memory if
// this process has the host to itself, else memory that the processes map from each other. The
// process of a rank zeroes its block. Blocks are aligned to 4096 bytes, from 4 MiB on to 2 MiB. The
// memory is freed with this object, which must outlive all users of the blocks. Mappings of other
// processes stay theirs.
#pragma once
#include <string>
#include <vector>

#include "collectives/job/job_ranks.h"
#include "collectives/memory/mapped_memory.h"
#include "engine/device/buffer.h"

namespace lockstep::collectives {

class HostMemory {
 public:
  // Maps the memory; collective over all processes of the job. `block`: bytes per block, a multiple
  // of 4096. `control`: bytes. `what` precedes the text of errors: "buckets: ". Throws Error(kIo)
  // on all processes if a host lacks memory for its processes or one cannot map it, and what the
  // bootstrap throws.
  HostMemory(const JobRanks& ranks, std::size_t block, std::size_t control,
             const std::string& what);

  const std::vector<int>& local() const { return local_; }  // ranks of this host
  std::byte* block(int rank) const;                         // of a rank on this host
  std::byte* control() const { return control_; }

 private:
  void take(const JobRanks& ranks, std::size_t block, std::size_t control, const std::string& what);
  void map(const JobRanks& ranks, const std::vector<std::string>& addresses);

  std::vector<int> local_;
  std::vector<std::byte*> blocks_;  // one per rank of this host
  std::byte* control_ = nullptr;
  engine::Buffer own_;                 // one process: all blocks and the control block
  std::vector<MappedMemory> mapped_;   // several: this process's ranks, perhaps control
  std::vector<engine::Buffer> peers_;  // mapped from other processes
};

}  // namespace lockstep::collectives
