// SPDX-License-Identifier: MIT
// A checkpoint is a folder DIR/step-0000000042 with one safetensors file per rank and
// manifest.json. The ranks write in parallel into DIR/step-0000000042.partial. When all shards are
// synced, the chief writes the manifest (temporary name, sync, rename) and renames the folder last.
// A folder without ".partial" is therefore whole, or its checksums (CRC-32 of each file) reveal
// later damage. engine/train/README.md describes the format. All errors name the file.
//
// The manifest lists named, whole arrays; shards hold pieces of them. Any number of replicas, under
// any strategy, can therefore read any checkpoint.
//
// Threads: each rank calls `write_shard` and `restore` for itself; one thread of the chief calls
// the rest.
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

// Holds what a run needs besides its arrays.
struct RunState {
  std::int64_t step = 0;   // steps done
  std::int64_t steps = 0;  // steps of the whole run, for the schedule
  DataPosition position = {};
  std::uint64_t seed = 0;
  std::size_t global_batch = 0;
  std::string dataset = {};  // Dataset::describe
  std::uint64_t dataset_fingerprint = 0;
  std::string graph = {};      // GraphSpec::describe
  std::string model = {};      // name in the registry, or empty
  std::string optimizer = {};  // Optimizer::describe
  std::string strategy = {};   // the writer, for people
  int replicas = 1;
  std::string plan = {};                          // Strategy::plan
  std::map<std::string, std::string> notes = {};  // the program's own notes
};

std::string checkpoint_name(std::int64_t step);  // "step-0000000042"

class Checkpoints {
 public:
  // `keep` is the number of whole checkpoints that stay; at least 1.
  Checkpoints(Storage& storage, std::string folder, int keep, Log log);

  // Removes what killed writers left, and tests whether checkpoints can be written. Call it before
  // a run, with the folder claimed. `bytes`: the approximate size of a checkpoint, or 0 if unknown;
  // `saves`: the most checkpoints that the run writes. Throws Error(kIo) if nothing can be written,
  // or if there is no room for all checkpoints that exist at the same time, at most max(2, keep).
  // Room is what statvfs reports, which does not know every kind of quota. Leaves nothing but the
  // folder.
  void prepare(std::uint64_t bytes = 0, std::int64_t saves = 0);
  // A save takes these steps in order: the chief calls `begin`; every rank calls `write_shard`; all
  // learn that all have written; the chief calls `commit`. After a failure the chief calls
  // `abandon`, which frees the disk space of this step. (If the process dies, the next `begin`
  // removes the leftovers.) If there is no room for another checkpoint, `begin` removes the oldest;
  // max(1, keep - 1) stay.
  void begin(std::int64_t step);
  Shard write_shard(std::int64_t step, int rank, int ranks, std::span<const Piece> pieces);
  // Checks that all files exist, commits, and removes all but `keep` checkpoints up to this step.
  // Later ones belong to a history that the run has left: they do not count, and they stay. If this
  // step has a checkpoint already, that one is renamed to NAME.replaced until the new one is in its
  // place. Old ones are renamed to NAME.old before they are removed. At every call of the file
  // system a whole checkpoint exists, if there ever was one. Throws if not all hosts share the
  // folder. A folder that cannot be removed causes a warning in the log, not an error. `shards`:
  // what the ranks reported.
  void commit(const RunState& state, std::span<const Shard> shards);

  void abandon(std::int64_t step) noexcept;

  // All reading functions repeat a read that the system refuses, Error(kIo), three times within
  // 0.3 s before they fail. A refused read says nothing about the file. Damage, Error(kCorrupt), is
  // a wrong checksum, a wrong size or an absent file.
  //
  // Returns the newest checkpoint with a correct manifest and correct checksums. Logs each damaged
  // newer one, with the file. Removes nothing, and skips what a run removes meanwhile. Throws
  // Error(kIo) if a checkpoint cannot be read. Throws Error(kInvalid) if a newer version of
  // lockstep wrote the newest one: going back silently would lose its steps.
  std::optional<std::int64_t> newest_whole();
  // Returns the checkpoint from which a run resumes. Like `newest_whole`, but throws
  // Error(kCorrupt) if there are checkpoints and none is whole, and Error(kInvalid) if the folder
  // itself is a checkpoint.
  std::optional<std::int64_t> newest();
  // Calls `use` with the newest checkpoint; returns false if there is none. If `use` fails because
  // a run has removed the checkpoint meanwhile, calls it again with the newest one of that time.
  bool use_newest(const std::function<void(std::int64_t step)>& use);
  // Reads a whole checkpoint. Throws Error(kCorrupt) or Error(kIo), with the reason, if it is not
  // whole.
  void verify(std::int64_t step);
  std::vector<std::int64_t> steps();       // all folders, ascending, whole or not
  RunState read_state(std::int64_t step);  // throws Error(kCorrupt) with file and reason
  struct ArrayInfo {
    std::string name = {};
    Shape shape = {};
    DType dtype = {};
  };
  std::vector<ArrayInfo> arrays(std::int64_t step);
  const std::string& folder() const { return folder_; }
  // Fills every piece. Pieces of 16-bit types may also come from float32 arrays, rounded to
  // nearest. Throws Error(kInvalid) that names an array that is missing or has another shape or
  // dtype. Missing arrays whose names begin with a prefix in `missing_is_zero` start at zero
  // (another optimizer's slots).
  void restore(std::int64_t step, std::span<const Piece> pieces,
               std::span<const std::string> missing_is_zero = {});

 private:
  std::string path(std::int64_t step) const;   // the final location
  std::string found(std::int64_t step) const;  // the current location
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
  std::uint64_t bytes_ = 0;          // size of one checkpoint; 0: unknown
  std::set<std::int64_t> verified_;  // steps that were written or read whole
  Log log_;
};

}  // namespace lockstep::engine
