// SPDX-License-Identifier: MIT
// The contents of a server: containers by name, each with clients' variables and, if a job is open,
// its shards. The first variable or job creates a container. It persists until it is reset, even if
// all clients leave. Containers have separate names.
//
// Errors are thrown unless stated otherwise; nothing changes then. kInvalid: the request is never
// possible (the text gives the names). kUnavailable: it may succeed after the chief has opened or
// restored. kIo and kMemory: memory is short.
//
// Thread-safe. One lock guards the containers' names. It is held only for look-ups, neither during
// allocations nor while values are written. Shards have their own locks (training_shards.h).
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "strategies/parameter_server/server/memory_budget.h"
#include "strategies/parameter_server/server/named_variables.h"
#include "strategies/parameter_server/server/training_shards.h"

namespace lockstep::strategies {

class ShardStore {
 public:
  // `ops` must outlive the store. `most_bytes`: maximum bytes of all that clients create
  // (memory_budget.h); 0: the machine's free memory, less a reserve.
  explicit ShardStore(const engine::Ops& ops, std::uint64_t most_bytes = 0);
  ~ShardStore();  // ends waiting calls with kAborted
  ShardStore(const ShardStore&) = delete;
  ShardStore& operator=(const ShardStore&) = delete;

  // Creates the container's shards, with zeros that do not count as values, and returns their
  // bytes. The generation must exceed that of the open job. Repeating the call with the same
  // generation and spec changes nothing. Waiting calls of the old job end with kUnavailable. If
  // both jobs do not fit into the machine's free memory, the old one is closed first.
  std::uint64_t open(const std::string& container, std::uint64_t generation, const JobSpec& spec);
  // Call `done` once, or throw.
  void pull(const std::string& container, PullOrder order, CallerPointer caller, Answered done);
  void push(const std::string& container, PushOrder order, CallerPointer caller, Answered done);
  // Sets start values of a job's shards and returns the version.
  std::int64_t assign_parts(const std::string& container, std::uint64_t generation,
                            const std::vector<ShardRange>& parts,
                            const std::vector<rpc::Slice>& body);
  // Returns the container's open job; throws Error(kUnavailable) if there is none.
  std::shared_ptr<TrainingShards> job(const std::string& container) const;
  // Replaces the job `now` by `next`. Throws Error(kUnavailable) if `now` is no longer open.
  // Waiting calls of `now` end with kUnavailable.
  void replace(const std::string& container, const std::shared_ptr<TrainingShards>& now,
               std::shared_ptr<TrainingShards> next);

  // These access clients' variables. Variables of an open job can be read (this server's rows) but
  // not assigned.
  void assign(const std::string& container, const std::string& name, NamedVariables::How how,
              const NamedVariables::Value& value);
  NamedVariables::Value read(const std::string& container, const std::string& name) const;
  // Removes the container. Returns the number of removed variables and shards.
  std::size_t reset(const std::string& container);

  // Ends waiting calls whose callers have left. The service calls it regularly; pulls and pushes
  // call it for their container.
  void drop_gone();

  struct ContainerState {
    std::string name = {};
    std::size_t variables = 0;                 // clients' variables
    std::uint64_t bytes = 0;                   // bytes of all arrays
    std::shared_ptr<TrainingShards> job = {};  // null: no job is open
  };
  std::vector<ContainerState> containers() const;  // by name
  // Returns a 64-bit checksum of all contents: equal contents have equal checksums.
  std::uint64_t checksum() const;
  const engine::Ops& ops() const { return ops_; }
  const MemoryBudget& budget() const { return budget_; }

 private:
  struct Container {
    Container(const std::string& name, MemoryBudget::Share of_name)
        : variables(name), share(std::move(of_name)) {}
    NamedVariables variables;
    const MemoryBudget::Share share;
    std::shared_ptr<TrainingShards> job;  // guarded by the store's mutex
  };
  std::shared_ptr<Container> find(const std::string& name) const;  // null: does not exist
  std::shared_ptr<Container> make(const std::string& name) const;
  void require_own(const Container& container, const std::string& name) const;
  std::shared_ptr<TrainingShards> replaced(const std::string& name, std::uint64_t generation,
                                           const JobSpec& spec) const;

  const engine::Ops& ops_;
  const MemoryBudget budget_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Container>, std::less<>> containers_;
};

}  // namespace lockstep::strategies
