// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/server/shard_store.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/hash.h"
#include "engine/checkpoint/safetensors.h"

namespace lockstep::strategies {

using engine::Code;
using engine::in_quotes;
using engine::require;

ShardStore::ShardStore(const engine::Ops& ops, std::uint64_t most_bytes)
    : ops_(ops), budget_(most_bytes) {}

ShardStore::~ShardStore() {
  for (const ContainerState& container : containers())
    if (container.job) container.job->close({Code::kAborted, "the server ends"});
}

std::shared_ptr<ShardStore::Container> ShardStore::find(const std::string& name) const {
  std::scoped_lock lock(mutex_);
  const auto found = containers_.find(name);
  return found == containers_.end() ? nullptr : found->second;
}

std::shared_ptr<ShardStore::Container> ShardStore::make(const std::string& name) const {
  // Bytes of a container besides its name, and copies of its name.
  constexpr std::uint64_t kOfContainer = 1024, kCopies = 3;
  require(name.size() <= kMostName, "the name {} of a container has {} bytes; at most {} can be",
          in_quotes(name), name.size(), kMostName);
  return std::make_shared<Container>(
      name, budget_.take(kOfContainer + kCopies * name.size(), "container " + in_quotes(name)));
}

// Returns the open job that a job of this spec and generation may replace; null if none is open.
// Requires the mutex.
std::shared_ptr<TrainingShards> ShardStore::replaced(const std::string& name,
                                                     std::uint64_t generation,
                                                     const JobSpec& spec) const {
  const auto found = containers_.find(name);
  if (found == containers_.end()) return nullptr;
  for (const ShardSpec& shard : spec.shards) {
    require(!found->second->variables.holds(shard.name),
            "{} of container {} is a client's own variable", in_quotes(shard.name),
            in_quotes(name));
  }
  const auto job = found->second->job;
  if (!job || (generation == job->generation() && job->spec() == spec)) return job;
  require(generation > job->generation(), "container {} is of generation {}; {} is not later",
          in_quotes(name), job->generation(), generation);
  return job;
}

std::uint64_t ShardStore::open(const std::string& name, std::uint64_t generation,
                               const JobSpec& spec) {
  check(spec);
  require(generation >= 1, "container {} is opened in generation 0", in_quotes(name));
  const std::string what = fmt::format("the job of container {}", in_quotes(name));
  const auto same = [&](const std::shared_ptr<TrainingShards>& job) {
    return job && job->generation() == generation && job->spec() == spec;
  };
  std::shared_ptr<TrainingShards> before;
  {
    std::scoped_lock lock(mutex_);
    before = replaced(name, generation, spec);
  }
  if (same(before)) return spec.bytes();
  const std::uint64_t now = before ? before->spec().memory() : 0;
  MemoryBudget::Share share = budget_.take(spec.memory(), what, now);
  const engine::Error why(Code::kUnavailable,
                          fmt::format("container {} was opened anew", in_quotes(name)));
  if (before && !budget_.are_free(share.bytes())) {
    before->close(why);
    std::scoped_lock lock(mutex_);
    const auto found = containers_.find(name);
    if (found != containers_.end() && found->second->job == before) found->second->job = nullptr;
    before = nullptr;
  }
  auto job =
      std::make_shared<TrainingShards>(name, generation, spec, ops_, budget_, std::move(share));
  {
    std::scoped_lock lock(mutex_);
    before = replaced(name, generation, spec);  // the job may have changed
    if (same(before)) return spec.bytes();
    auto found = containers_.find(name);
    if (found == containers_.end()) found = containers_.emplace(name, make(name)).first;
    found->second->job = std::move(job);
  }
  if (before) before->close(why);
  return spec.bytes();
}

std::shared_ptr<TrainingShards> ShardStore::job(const std::string& name) const {
  std::scoped_lock lock(mutex_);
  const auto found = containers_.find(name);
  if (found == containers_.end() || !found->second->job) {
    engine::fail(Code::kUnavailable, "no training job is open in container {}", in_quotes(name));
  }
  return found->second->job;
}

void ShardStore::replace(const std::string& name, const std::shared_ptr<TrainingShards>& now,
                         std::shared_ptr<TrainingShards> next) {
  {
    std::scoped_lock lock(mutex_);
    const auto found = containers_.find(name);
    if (found == containers_.end() || found->second->job != now) {
      engine::fail(Code::kUnavailable, "container {} was opened anew or reset", in_quotes(name));
    }
    found->second->job = std::move(next);
  }
  now->close({Code::kUnavailable, fmt::format("container {} was restored", in_quotes(name))});
}

void ShardStore::pull(const std::string& container, PullOrder order, CallerPointer caller,
                      Answered done) {
  const auto shards = job(container);
  shards->drop_gone();
  shards->pull(std::move(order), std::move(caller), std::move(done));
}

void ShardStore::push(const std::string& container, PushOrder order, CallerPointer caller,
                      Answered done) {
  const auto shards = job(container);
  shards->drop_gone();
  shards->push(std::move(order), std::move(caller), std::move(done));
}

std::int64_t ShardStore::assign_parts(const std::string& container, std::uint64_t generation,
                                      const std::vector<ShardRange>& parts,
                                      const std::vector<rpc::Slice>& body) {
  return job(container)->assign(generation, parts, body);
}

// Throws if the variable belongs to a training job. Requires the mutex.
void ShardStore::require_own(const Container& container, const std::string& name) const {
  if (!container.job) return;
  for (const ShardSpec& shard : container.job->spec().shards) {
    require(shard.name != name, "{} of container {} belongs to a training job", in_quotes(name),
            in_quotes(container.variables.container()));
  }
}

// Adding needs no lock: a variable persists until its container goes, and no job with its name can
// be opened.
void ShardStore::assign(const std::string& container, const std::string& name,
                        NamedVariables::How how, const NamedVariables::Value& value) {
  std::shared_ptr<Container> target = find(container);
  if (target) {
    std::scoped_lock lock(mutex_);
    require_own(*target, name);
  }
  if (!target) target = make(container);
  NamedVariables::Variable variable = target->variables.copied(name, value, budget_);
  if (how == NamedVariables::How::kAdd) return target->variables.add(name, variable, ops_);
  NamedVariables::Variable before;  // freed after the lock is released
  std::scoped_lock lock(mutex_);
  const auto found = containers_.find(container);
  if (found != containers_.end()) {
    target = found->second;
    require_own(*target, name);
  }
  before = target->variables.put(name, how, std::move(variable));
  if (found == containers_.end()) containers_.emplace(container, std::move(target));
}

NamedVariables::Value ShardStore::read(const std::string& container,
                                       const std::string& name) const {
  const auto there = find(container);
  std::shared_ptr<TrainingShards> job;
  if (there) {
    std::scoped_lock lock(mutex_);
    job = there->job;
  }
  if (job) {
    const std::vector<ShardSpec>& shards = job->spec().shards;
    const auto shard = std::find_if(shards.begin(), shards.end(),
                                    [&](const ShardSpec& spec) { return spec.name == name; });
    if (shard != shards.end()) return job->read(std::size_t(shard - shards.begin()));
  }
  require(there != nullptr, "there is no {}: no container {}", in_quotes(name),
          in_quotes(container));
  return there->variables.read(name);
}

std::size_t ShardStore::reset(const std::string& container) {
  std::shared_ptr<Container> there;
  std::shared_ptr<TrainingShards> job;
  {
    std::scoped_lock lock(mutex_);
    const auto found = containers_.find(container);
    if (found == containers_.end()) return 0;
    there = found->second;
    job = there->job;
    containers_.erase(found);
  }
  std::size_t removed = there->variables.size();
  if (job) {
    removed += job->spec().shards.size();
    job->close({Code::kUnavailable, fmt::format("container {} was reset", in_quotes(container))});
  }
  return removed;
}

void ShardStore::drop_gone() {
  for (const ContainerState& container : containers())
    if (container.job) container.job->drop_gone();
}

std::vector<ShardStore::ContainerState> ShardStore::containers() const {
  std::vector<ContainerState> states;
  std::scoped_lock lock(mutex_);
  for (const auto& [name, container] : containers_) {
    states.push_back(
        {name, container->variables.size(), container->variables.bytes(), container->job});
    if (container->job) states.back().bytes += container->job->spec().bytes();
  }
  return states;
}

std::uint64_t ShardStore::checksum() const {
  std::uint64_t sum = 0;
  for (const ContainerState& state : containers()) {
    const auto container = find(state.name);
    std::uint64_t here = engine::hash(state.name);
    if (container) here += container->variables.checksum(ops_);
    if (state.job) here += state.job->checksum();
    sum += here * 0x9e3779b97f4a7c15;
  }
  return sum;
}

}  // namespace lockstep::strategies
