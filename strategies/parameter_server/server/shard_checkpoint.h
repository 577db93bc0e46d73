// SPDX-License-Identifier: MIT
// A server's shard of a checkpoint. Weights and optimizer slots are pieces of whole variables, so
// any strategy and any placement can read them. Servers add arrays of their own
// (engine/train/README.md):
//
//   parameter_server.KEY/version   int64 [1]     the version
//   parameter_server.KEY/pushes    int64 [n, 3]  worker, first, end: received push numbers
//   updates.KEY/NAME               int64 [n, 3]  begin, end, updates: elements of the variable
//   updates/NAME                   int32 [rows]  updates of each row of a sparse variable
//
// KEY: 16 hexadecimal digits that identify the server's rows. The last two exist if the optimizer
// counts steps: servers count updates per element. Other strategies take the run's step for all.
//
// Threads: any, each with its own `Checkpoints`. Cost: the file's bytes. Pushes continue during a
// write, and memory grows by what they change.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "strategies/parameter_server/server/shard_store.h"

namespace lockstep::strategies {

struct SavedShard {
  engine::Shard file = {};
  std::int64_t version = 0;
};

// Writes shard `rank` of `ranks` of the checkpoint of `step`, which the chief began. Throws the
// errors of Checkpoints::write_shard and TrainingShards::snapshot.
SavedShard save_shard(ShardStore& store, const std::string& container, std::uint64_t generation,
                      engine::Checkpoints& checkpoints, std::int64_t step, int rank, int ranks);

// Restores the container's open job from the checkpoint and returns the version. `generation` must
// not be before the job's; repeating the call changes nothing. If the job already has values, they
// stay until all is read, which needs the memory twice. `zero`: see Checkpoints::restore;
// "parameter_server." resets the version and the pushes, which is required if workers restart.
//
// Only a server with the same KEY reads the version and the pushes. Others, and servers that reset
// them, use the checkpoint's step as version and know no pushes. Any server reads the updates;
// elements without an entry get the checkpoint's step.
std::int64_t restore_shard(ShardStore& store, const std::string& container,
                           std::uint64_t generation, engine::Checkpoints& checkpoints,
                           std::int64_t step, std::span<const std::string> zero);

}  // namespace lockstep::strategies
