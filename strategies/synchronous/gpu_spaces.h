// SPDX-License-Identifier: MIT
// Access of a host's ranks to each other's GPUs if they are in several processes. Gradients,
// weights, scratch and norms of other processes are opened here. The exchange is in host memory
// that all processes map and GPUs access, since the host also reads and writes it. An event per
// rank orders its kernels among the others'. All of it is registered in the team.
//
// A process that dies leaves events that never complete. Therefore a wait for the GPU ends with the
// team's error after the team stopped, or at the deadline. The GPU is then abandoned, since freeing
// its memory would wait again. Errors due to the dead process's memory are also replaced by the
// team's error.
//
// Collective construction; thread-safe. Destroy it when nothing is queued any more; memory, team
// and device must outlive it. After its end other processes must not open anything of this process
// until a later exchange of all processes.
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
  // Takes the `device` of this process's replicas; null if no other process shares its host. Before
  // the call, the bases of this process's ranks are set, with the exchange in their blocks of
  // `memory`. Throws Error(kDevice) on all processes if one of them cannot open something, and the
  // bootstrap's errors.
  GpuSpaces(const collectives::JobRanks& ranks, engine::ProcessSharing* device,
            const ArenaLayout& layout, const collectives::HostMemory& memory,
            collectives::Team& team, std::chrono::milliseconds deadline);
  ~GpuSpaces();
  GpuSpaces(const GpuSpaces&) = delete;
  GpuSpaces& operator=(const GpuSpaces&) = delete;

  // Sets the deadline of subsequent waits for the GPU.
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
  collectives::Team team_;  // uses the same control block
  std::atomic<std::chrono::milliseconds> deadline_;
  std::vector<engine::Buffer> pinned_, opened_;
  std::vector<std::unique_ptr<engine::ProcessEvent>> events_;
};

}  // namespace lockstep::strategies
