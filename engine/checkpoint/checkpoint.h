// SPDX-License-Identifier: MIT
// Checkpoints: a folder DIR/step-0000000042 with one safetensors file a rank and manifest.json. The
// ranks write side by side into DIR/step-0000000042.partial; when all shards are synced the chief
// writes the manifest (temporary name, sync, rename), and renames the folder last. So a folder
// without ".partial" is whole, or was damaged later, which its checksums (CRC-32 of each file)
// tell. README.md describes the format. All errors name the file.
//
// Arrays are named and whole in the manifest; shards hold pieces of them. So any number of
// replicas, under any strategy, reads what any other wrote.
//
// Threads: `write_shard`, `restore` by each rank for itself; the others by one thread of the chief.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/base/log.h"
#include "engine/checkpoint/shard.h"
#include "engine/checkpoint/storage.h"
#include "engine/data/pipeline.h"

namespace lockstep::engine {

// What a run needs besides its arrays.
struct RunState {
  std::int64_t step = 0;   // steps done
  std::int64_t steps = 0;  // steps of the whole run: the schedule needs them
  DataPosition position = {};
  std::uint64_t seed = 0;
  std::size_t global_batch = 0;
  std::string dataset = {};  // Dataset::describe
  std::uint64_t dataset_fingerprint = 0;
  std::string graph = {};      // GraphSpec::describe
  std::string model = {};      // name in the registry; empty where it has none
  std::string optimizer = {};  // Optimizer::describe
  std::string strategy = {};   // who wrote it, for people
  int replicas = 1;
  std::string plan = {};                          // Strategy::plan
  std::map<std::string, std::string> notes = {};  // the program's own
};

std::string checkpoint_name(std::int64_t step);  // "step-0000000042"

class Checkpoints {
 public:
  // `keep`: how many whole ones stay; at least 1.
  Checkpoints(Storage& storage, std::string folder, int keep, Log log);

  // Before a run that holds the folder: removes what killed writers left, and tries whether
  // checkpoints can be written. `bytes`: of one, about, 0 where it is not known; `saves`: how many
  // the run writes at most. Throws Error(kIo) where there is no room for as many as will lie there
  // at once, or nothing can be written; leaves nothing but the folder.
  void prepare(std::uint64_t bytes = 0, std::int64_t saves = 0);
  // Saving, in this order: chief begin; every rank write_shard; (all know that all have written);
  // chief commit. After a failure the chief abandons: what was written of this step goes, since it
  // would fill the disk that others need. (A process that dies leaves it to the next `begin`.)
  // Where there is no room for another one, `begin` removes the oldest: max(1, keep - 1) stay.
  void begin(std::int64_t step);
  Shard write_shard(std::int64_t step, int rank, int ranks, std::span<const Piece> pieces);
  // `shards`: what the ranks reported. Checks that all files are there (a folder that not all hosts
  // share is an error that says so), commits, and removes what is more than `keep` of those up to
  // this step. A folder that cannot be removed is a warning in the log, not an error.
  void commit(const RunState& state, std::span<const Shard> shards);

  void abandon(std::int64_t step) noexcept;

  // All that read try again for a moment where the system refuses, Error(kIo), and then give up.
  //
  // The newest checkpoint whose manifest and checksums are right; each newer one that is damaged is
  // reported in the log, by file. Removes nothing; what a run removes meanwhile is passed over.
  // Throws Error(kIo) where one cannot be read, and Error(kInvalid) where a newer version of
  // lockstep wrote the newest one: going back silently would lose its steps.
  std::optional<std::int64_t> newest_whole();
  // The same for who goes on from there: Error(kCorrupt) where checkpoints are there and none is
  // whole, and Error(kInvalid) where the folder is itself a checkpoint.
  std::optional<std::int64_t> newest();
  // Calls `use` with it; false: there is none. Where `use` fails since a run has removed the
  // checkpoint meanwhile, it is called again with the then newest one.
  bool use_newest(const std::function<void(std::int64_t step)>& use);
  // Reads all of one; throws Error(kCorrupt) or Error(kIo), with the reason, if it is not whole.
  void verify(std::int64_t step);
  std::vector<std::int64_t> steps();       // of all folders, ascending, whole or not
  RunState read_state(std::int64_t step);  // throws Error(kCorrupt) with file and reason
  struct ArrayInfo {
    std::string name = {};
    Shape shape = {};
    DType dtype = {};
  };
  std::vector<ArrayInfo> arrays(std::int64_t step);
  const std::string& folder() const { return folder_; }
  // Fills every piece; those of 16 bits from arrays of float32 too, rounded to the nearest. Throws
  // Error(kInvalid) naming an array that is missing or has another shape or another dtype;
  // `missing_is_zero` lets arrays whose name begins with one of these prefixes start at zero
  // (another optimizer's slots).
  void restore(std::int64_t step, std::span<const Piece> pieces,
               std::span<const std::string> missing_is_zero = {});

 private:
  std::string path(std::int64_t step) const;   // where it lies in the end
  std::string found(std::int64_t step) const;  // where it lies now
  void remove(const std::string& tree) const;
  bool holds(std::int64_t step) const;
  template <class Look>
  void look_again(Look look) const;
  void remove_leftovers();
  void require_room(std::int64_t saves);
  void prune(std::int64_t newest, int keep) const;
  Storage& storage_;
  std::string folder_;
  int keep_;
  std::uint64_t bytes_ = 0;          // of one; 0: not known
  std::set<std::int64_t> verified_;  // steps that were written or read whole
  Log log_;
};

}  // namespace lockstep::engine
