// SPDX-License-Identifier: MIT
// A server's shard of a checkpoint: weights and optimizer slots as pieces of whole variables, so
// that any strategy reads what servers wrote and the other way round, however the variables were
// assigned then and are now. Beside them, for servers alone (engine/train/README.md):
//
//   parameter_server.KEY/version   int64 [1]     the version
//   parameter_server.KEY/pushes    int64 [n, 3]  worker, first, end: numbers of pushes that came
//   updates.KEY/NAME               int64 [n, 3]  begin, end, updates: of elements of the variable
//   updates/NAME                   int32 [rows]  updates of each row of a sparse variable
//
// KEY are 16 hexadecimal digits that say which rows of which variables the server has. The first
// two are read by a server that has the same; others, or one that is told to begin them at zero,
// take the checkpoint's step for the version, and know no pushes. The last two are there where the
// optimizer counts steps, and are read by any server; elements that none names have the
// checkpoint's step.
//
// Threads: any, each with its own `Checkpoints`. Cost: the file's bytes; while it is written pushes
// go on, and memory grows by what they change.
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

// Writes shard `rank` of `ranks` of the checkpoint of `step`, which the chief began. Throws what
// Checkpoints::write_shard and TrainingShards::snapshot throw.
SavedShard save_shard(ShardStore& store, const std::string& container, std::uint64_t generation,
                      engine::Checkpoints& checkpoints, std::int64_t step, int rank, int ranks);

// Gives the container's open job what the checkpoint holds, in this generation, which is not
// before the job's; the same call once more changes nothing. Where the job had values they stay,
// and memory is taken once more, until all is read. `zero`: see Checkpoints::restore; with
// "parameter_server." version and pushes begin anew, as they must where workers do. The version.
std::int64_t restore_shard(ShardStore& store, const std::string& container,
                           std::uint64_t generation, engine::Checkpoints& checkpoints,
                           std::int64_t step, std::span<const std::string> zero);

}  // namespace lockstep::strategies
