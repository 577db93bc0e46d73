// SPDX-License-Identifier: MIT
// What ranks of one host read and write of each other's GPUs where they are in several processes:
// gradients, weights, scratch and norms of the others are opened here; the exchange, which the host
// reads and writes too, lies in the host's memory that all processes map, and GPUs reach it; and a
// event of each rank orders its kernels among the others'. All of it is put into the team.
//
// A process that dies leaves events that will never be done. So waits for the GPU end with the
// team's reason, once that has stopped, or at the deadline; then the GPU is given up, since it
// would be waited for again by whoever frees what lies there. What fails because the dead process's
// memory is gone has the team's reason, too.
//
// Made by all processes at once (collective). Any thread. Closed with this object, when nothing is
// queued any more; memory, team and device outlive it, and others open nothing of this process
// after the end of their own object and before a later exchange of all processes.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "collectives/job/host_memory.h"
#include "collectives/run/team.h"
#include "engine/device/buffer.h"
#include "engine/device/process_sharing.h"
#include "strategies/synchronous/mirror.h"

namespace lockstep::strategies {

class GpuSpaces {
 public:
  // `device`: of this process's replicas; null where no other process shares its host. The bases of
  // this process's ranks are set, to the exchange in their blocks of `memory`. Throws
  // Error(kDevice) where something cannot be opened, on all processes where on one, and what the
  // bootstrap throws.
  GpuSpaces(const collectives::JobRanks& ranks, engine::ProcessSharing* device,
            const ArenaLayout& layout, const collectives::HostMemory& memory,
            collectives::Team& team, std::chrono::milliseconds deadline);
  ~GpuSpaces();
  GpuSpaces(const GpuSpaces&) = delete;
  GpuSpaces& operator=(const GpuSpaces&) = delete;

  // Of waits for the GPU, from now on.
  void set_deadline(std::chrono::milliseconds deadline) { deadline_ = deadline; }

 private:
  std::string told(const collectives::JobRanks& ranks, collectives::Team& team);
  void open(const collectives::JobRanks& ranks, const ArenaLayout& layout,
            const collectives::HostMemory& memory, collectives::Team& team,
            const std::vector<std::string>& texts);
  void look(std::chrono::nanoseconds waited);
  void look_at_failure() const;

  int rank_;
  engine::ProcessSharing* device_;
  collectives::Team team_;  // over the same control block
  std::atomic<std::chrono::milliseconds> deadline_;
  std::vector<engine::Buffer> pinned_, opened_;
  std::vector<std::unique_ptr<engine::ProcessEvent>> events_;
};

}  // namespace lockstep::strategies
