// SPDX-License-Identifier: MIT
// What a server keeps: containers by name, each with clients' own variables, and the shards of a
// training job where one is open. A container comes to be with the first that is put into it, and
// stays, whoever leaves, until it is reset. Names in two containers are two.
//
// Errors, thrown unless said: kInvalid what can never be, with the names; kUnavailable what may be
// when the chief has opened or restored; kIo and kMemory no memory. Nothing is changed then.
//
// Threads: any. One lock for the containers' names, held for look-ups alone: neither while memory
// is taken nor while values are written. Shards have their own locks (training_shards.h).
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
  // `ops` outlives the store. `most_bytes`: of all that clients create (memory_budget.h); 0: what
  // the machine has free, less a reserve.
  explicit ShardStore(const engine::Ops& ops, std::uint64_t most_bytes = 0);
  ~ShardStore();  // calls that wait end with kAborted
  ShardStore(const ShardStore&) = delete;
  ShardStore& operator=(const ShardStore&) = delete;

  // The container's shards, afresh: zeros without values. The generation is larger than that of
  // what was open there; the same one with the same spec is the same call once more, and changes
  // nothing. Calls that waited end with kUnavailable. Their bytes. Where both do not fit into what
  // the machine has free, the one before is closed first.
  std::uint64_t open(const std::string& container, std::uint64_t generation, const JobSpec& spec);
  // `done` is called once, or an error thrown.
  void pull(const std::string& container, PullOrder order, CallerPointer caller, Answered done);
  void push(const std::string& container, PushOrder order, CallerPointer caller, Answered done);
  // Start values of a job's shards. The version.
  std::int64_t assign_parts(const std::string& container, std::uint64_t generation,
                            const std::vector<ShardRange>& parts,
                            const std::vector<rpc::Slice>& body);
  // The container's open job; throws Error(kUnavailable) where there is none.
  std::shared_ptr<TrainingShards> job(const std::string& container) const;
  // `next` takes the place of `now`, unless something else has: Error(kUnavailable) then. Calls
  // that wait for `now` end with kUnavailable.
  void replace(const std::string& container, const std::shared_ptr<TrainingShards>& now,
               std::shared_ptr<TrainingShards> next);

  // Clients' own variables. Those of an open job are read (the rows that are here), not assigned.
  void assign(const std::string& container, const std::string& name, NamedVariables::How how,
              const NamedVariables::Value& value);
  NamedVariables::Value read(const std::string& container, const std::string& name) const;
  // Removes all of it. The number of variables and shards that were there.
  std::size_t reset(const std::string& container);

  // Ends waiting calls whose callers are gone. Whoever serves calls it now and then; pulls and
  // pushes to a container do it for that container.
  void drop_gone();

  struct ContainerState {
    std::string name = {};
    std::size_t variables = 0;                 // clients'
    std::uint64_t bytes = 0;                   // of all arrays
    std::shared_ptr<TrainingShards> job = {};  // null: none is open
  };
  std::vector<ContainerState> containers() const;  // by name
  // A 64-bit sum of everything that is kept: equal contents give equal sums.
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
  std::shared_ptr<Container> find(const std::string& name) const;  // null: none
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
