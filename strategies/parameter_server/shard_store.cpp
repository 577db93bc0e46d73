// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/shard_store.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/hash.h"
#include "engine/train/safetensors.h"

namespace lockstep::strategies {

using engine::Code;
using engine::in_quotes;
using engine::require;

ShardStore::ShardStore(const engine::Ops& ops, std::uint64_t most_bytes)
    : ops_(ops), most_bytes_(most_bytes) {}

ShardStore::~ShardStore() {
  for (const ContainerState& container : containers())
    if (container.job) container.job->close({Code::kAborted, "the server ends"});
}

std::shared_ptr<ShardStore::Container> ShardStore::find(const std::string& name) const {
  std::scoped_lock lock(mutex_);
  const auto found = containers_.find(name);
  return found == containers_.end() ? nullptr : found->second;
}

std::uint64_t ShardStore::bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, container] : containers_) {
    bytes += container->variables.bytes();
    if (container->job) bytes += container->job->spec().bytes();
  }
  return bytes;
}

void ShardStore::check_room(std::uint64_t more, std::uint64_t less, const std::string& what) const {
  if (most_bytes_ == 0) return;
  const std::uint64_t there = bytes() - less;
  if (there > most_bytes_ || more > most_bytes_ - there) {
    engine::fail(Code::kMemory, "{} has {} bytes; {} are taken of the {} that the server may take",
                 what, more, there, most_bytes_);
  }
}

// Memory is taken under the lock, so that two openings at once do not take it twice.
std::uint64_t ShardStore::open(const std::string& name, std::uint64_t generation,
                               const JobSpec& spec) {
  check(spec);
  require(generation >= 1, "container {} is opened in generation 0", in_quotes(name));
  std::shared_ptr<TrainingShards> before;
  {
    std::scoped_lock lock(mutex_);
    auto found = containers_.find(name);
    if (found != containers_.end()) before = found->second->job;
    if (before) {
      const std::uint64_t now = before->generation();
      if (generation == now && before->spec() == spec) return spec.bytes();
      require(generation > now, "container {} is of generation {}; {} is not later",
              in_quotes(name), now, generation);
    }
    if (found != containers_.end()) {
      for (const ShardSpec& shard : spec.shards) {
        require(!found->second->variables.holds(shard.name),
                "{} of container {} is a client's own variable", in_quotes(shard.name),
                in_quotes(name));
      }
    }
    check_room(spec.bytes(), before ? before->spec().bytes() : 0,
               fmt::format("the job of container {}", in_quotes(name)));
    auto job = std::make_shared<TrainingShards>(name, generation, spec, ops_);
    if (found == containers_.end())
      found = containers_.emplace(name, std::make_shared<Container>(name)).first;
    found->second->job = std::move(job);
  }
  if (before) {
    before->close(
        {Code::kUnavailable, fmt::format("container {} was opened anew", in_quotes(name))});
  }
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
                                      const std::vector<HeldPart>& parts,
                                      const std::vector<rpc::Slice>& body) {
  return job(container)->assign(generation, parts, body);
}

void ShardStore::assign(const std::string& container, const std::string& name,
                        NamedVariables::How how, const NamedVariables::Value& value) {
  std::scoped_lock lock(mutex_);
  const auto found = containers_.find(container);
  const bool there = found != containers_.end();
  if (there && found->second->job) {
    for (const ShardSpec& shard : found->second->job->spec().shards) {
      require(shard.name != name, "{} of container {} belongs to a training job", in_quotes(name),
              in_quotes(container));
    }
  }
  check_room(value.bytes(), 0, in_quotes(name));
  auto target = there ? found->second : std::make_shared<Container>(container);
  target->variables.assign(name, how, value, ops_);
  if (!there) containers_.emplace(container, std::move(target));
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
