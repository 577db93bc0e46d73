// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/worker/servers.h"

#include <future>
#include <optional>
#include <utility>

#include "engine/device/buffer.h"
#include "engine/nn/initial.h"
#include "strategies/parameter_server/rpc/messages.pb.h"
#include "strategies/parameter_server/server/message_values.h"

namespace lockstep::strategies {

using engine::Clock;

namespace {

constexpr std::uint64_t kSlowDisk = 10'000;          // bytes a millisecond
constexpr std::chrono::milliseconds kUntilLook{20};  // whether others have failed

template <class Head>
Head server_answer(const rpc::Message& message) {
  Head head;
  if (!head.ParseFromString(message.head))
    engine::fail(engine::Code::kCorrupt, "a server's answer cannot be read");
  return head;
}

std::string kind_of(const engine::UpdateRule& rule) {
  if (rule.kind == engine::UpdateKind::kSgd) return "sgd";
  if (rule.kind == engine::UpdateKind::kLars) return "lars";  // servers refuse it
  return rule.kind == engine::UpdateKind::kAdam ? "adam" : "adamw";
}

}  // namespace

JobSpec job_spec(const VariablePlacement& placement, std::size_t server, engine::DType dtype,
                 const engine::UpdateRule& rule, const UpdatePolicy& policy) {
  JobSpec spec;
  spec.placement_hash = fmt::format("{:016x}", hash_of(placement));
  spec.rule = rule;
  spec.policy = policy;
  for (const PlacedShard& placed : placement.shards) {
    if (placed.server != server) continue;
    const VarInfo& variable = placement.variables[placed.variable];
    spec.shards.push_back({variable.name, variable.shape, placed.rows.begin, placed.rows.size(),
                           dtype, !variable.trainable, variable.sparse, variable.decays});
  }
  return spec;
}

Servers::Servers(std::vector<std::unique_ptr<rpc::Connection>> connections, std::string container,
                 std::chrono::milliseconds deadline)
    : container_(std::move(container)), deadline_(deadline), connections_(std::move(connections)) {}

Servers::~Servers() = default;

// The largest server's file, which a slow disk takes its time for.
std::chrono::milliseconds Servers::deadline_of_files() const {
  std::uint64_t most = 0;
  for (const JobSpec& spec : specs_) most = std::max(most, spec.bytes());
  return deadline_ + std::chrono::milliseconds(most / kSlowDisk);
}

// One request to each server, at once; the first error of any is thrown when all have answered.
std::vector<rpc::Message> Servers::all(std::string_view method, std::vector<rpc::Message> requests,
                                       std::chrono::milliseconds deadline) {
  std::vector<std::future<rpc::Reply>> replies;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto promise = std::make_shared<std::promise<rpc::Reply>>();
    replies.push_back(promise->get_future());
    connections_[i]->start(method, std::move(requests[i]), Clock::now() + deadline,
                           [promise](rpc::Reply reply) { promise->set_value(std::move(reply)); });
  }
  std::vector<rpc::Message> answers;
  std::optional<engine::Error> failed;
  for (std::size_t i = 0; i < replies.size(); ++i) {
    while (replies[i].wait_for(kUntilLook) != std::future_status::ready) {
      std::scoped_lock lock(mutex_);
      if (failed_) throw *failed_;
    }
    rpc::Reply reply = replies[i].get();
    if (reply.ok()) {
      answers.push_back(std::move(reply.message));
    } else if (!failed) {
      failed.emplace(reply.code, fmt::format("{} at server {} ({}): {}", method, i,
                                             connections_[i]->address(), reply.why));
    }
  }
  if (failed) throw *failed;
  return answers;
}

rpc::Message Servers::open_request(std::size_t server) const {
  const JobSpec& spec = specs_[server];
  OpenRequest request;
  request.set_container(container_);
  request.set_placement_hash(spec.placement_hash);
  request.set_generation(generation_);
  for (const ShardSpec& shard : spec.shards) {
    Shard* const added = request.add_shards();
    added->set_name(shard.name);
    for (std::size_t axis = 0; axis < shard.shape.rank(); ++axis)
      added->add_shape(shard.shape[axis]);
    added->set_first_row(shard.first_row);
    added->set_rows(shard.rows);
    added->set_dtype(std::string(engine::name(shard.dtype)));
    added->set_frozen(shard.frozen);
    added->set_sparse(shard.sparse);
    added->set_undecayed(!shard.decays);
  }
  Rule& rule = *request.mutable_rule();
  rule.set_kind(kind_of(spec.rule));
  rule.set_momentum(spec.rule.momentum);
  rule.set_nesterov(spec.rule.nesterov);
  rule.set_weight_decay(spec.rule.weight_decay);
  rule.set_beta1(spec.rule.beta1);
  rule.set_beta2(spec.rule.beta2);
  rule.set_epsilon(spec.rule.epsilon);
  Policy& policy = *request.mutable_policy();
  policy.set_synchronous(spec.policy.synchronous);
  policy.set_workers(spec.policy.workers);
  policy.set_aggregate(spec.policy.aggregate);
  policy.set_scale_rate(spec.policy.scale_rate);
  policy.set_most_staleness(spec.policy.most_staleness);
  return message_of(request);
}

void Servers::open(const std::vector<JobSpec>& specs, std::uint64_t generation) {
  {
    std::scoped_lock lock(mutex_);
    failed_.reset();
  }
  specs_ = specs;
  generation_ = generation;
  std::vector<rpc::Message> requests;
  for (std::size_t server = 0; server < size(); ++server) requests.push_back(open_request(server));
  all("Open", std::move(requests), deadline_);
}

bool Servers::probe(std::size_t server, std::chrono::milliseconds deadline) {
  const auto head = server_answer<OpenReply>(
      rpc::call(*connections_[server], "Open", open_request(server), Clock::now() + deadline));
  return head.ready();
}

void Servers::assign(const ArenaShards& shards, engine::Range range, const std::byte* weights,
                     engine::DType dtype, std::size_t chunk_bytes) {
  const std::size_t width = engine::size_of(dtype);
  std::vector<std::vector<ShardChunk>> chunks;
  for (std::size_t server = 0; server < size(); ++server)
    chunks.push_back(shards.chunks(server, range, chunk_bytes));
  assign(chunks, [&](const ShardChunk& chunk) {
    std::vector<rpc::Slice> body;
    for (const ShardPart& part : chunk.parts)
      body.push_back({weights + part.offset * width, part.size() * width});
    return body;
  });
}

void Servers::assign(const RowShards& tables, std::uint64_t seed, engine::DType dtype,
                     std::size_t chunk_bytes) {
  const std::size_t width = engine::size_of(dtype);
  for (std::size_t number = 0; number < tables.tables().size(); ++number) {
    const engine::Parameter& table = tables.tables()[number];
    std::vector<std::vector<ShardChunk>> chunks(size());
    for (const ShardPart& part : tables.parts(number, chunk_bytes / width))
      chunks[part.server].push_back({{part}, part.size(), {}});
    assign(chunks, [&](const ShardChunk& chunk) -> std::vector<rpc::Slice> {
      const ShardPart& part = chunk.parts[0];
      const auto memory = std::make_shared<engine::Buffer>(part.size() * width);
      engine::initialise(table.initial, seed, table.name, {memory->data(), {part.size()}, dtype},
                         part.offset);
      return {{memory->data(), part.size() * width, memory}};
    });
  }
}

void Servers::assign(const std::vector<std::vector<ShardChunk>>& chunks, const Values& values) {
  std::size_t most = 0;
  for (const auto& of_server : chunks) most = std::max(most, of_server.size());
  for (std::size_t i = 0; i < most; ++i) {
    std::vector<std::future<rpc::Reply>> replies;
    for (std::size_t server = 0; server < size(); ++server) {
      if (i >= chunks[server].size()) continue;
      AssignRequest request;
      request.set_container(container_);
      request.set_generation(generation_);
      request.set_how(AssignRequest::FORCE);
      for (const ShardPart& part : chunks[server][i].parts) {
        Part* const added = request.add_parts();
        added->set_shard(std::uint32_t(part.shard));
        added->set_begin(part.begin);
        added->set_end(part.end);
      }
      const auto promise = std::make_shared<std::promise<rpc::Reply>>();
      replies.push_back(promise->get_future());
      connections_[server]->start(
          "Assign", {request.SerializeAsString(), values(chunks[server][i])},
          Clock::now() + deadline_,
          [promise](rpc::Reply reply) { promise->set_value(std::move(reply)); });
    }
    std::optional<engine::Error> failed;
    for (auto& future : replies) {
      const rpc::Reply reply = future.get();
      if (!reply.ok() && !failed)
        failed.emplace(reply.code, fmt::format("start values: {}", reply.why));
    }
    if (failed) throw *failed;
  }
}

void Servers::fail(const engine::Error& why) {
  std::scoped_lock lock(mutex_);
  if (!failed_) failed_ = why;
}

std::vector<engine::Shard> Servers::save(const std::string& folder, std::int64_t step) {
  std::vector<rpc::Message> requests;
  for (std::size_t server = 0; server < size(); ++server) {
    SaveRequest request;
    request.set_container(container_);
    request.set_generation(generation_);
    request.set_folder(folder);
    request.set_step(step);
    request.set_rank(std::uint32_t(server));
    request.set_ranks(std::uint32_t(size()));
    requests.push_back(message_of(request));
  }
  std::vector<engine::Shard> shards;
  for (const rpc::Message& answer : all("Save", std::move(requests), deadline_of_files())) {
    const auto head = server_answer<SaveReply>(answer);
    shards.push_back({head.bytes(), head.crc()});
  }
  return shards;
}

namespace {

RestoreRequest restore_request(const std::string& container, std::uint64_t generation,
                               const std::string& folder, std::int64_t step,
                               const std::vector<std::string>& zero) {
  RestoreRequest request;
  request.set_container(container);
  request.set_generation(generation);
  request.set_folder(folder);
  request.set_step(step);
  for (const std::string& prefix : zero) request.add_zero(prefix);
  return request;
}

}  // namespace

void Servers::restore(const std::string& folder, std::int64_t step,
                      const std::vector<std::string>& zero) {
  const rpc::Message request =
      message_of(restore_request(container_, generation_, folder, step, zero));
  all("Restore", std::vector<rpc::Message>(size(), request), deadline_of_files());
}

void Servers::restore(std::size_t server, const std::string& folder, std::int64_t step,
                      const std::vector<std::string>& zero) {
  rpc::call(*connections_[server], "Restore",
            message_of(restore_request(container_, generation_, folder, step, zero)),
            Clock::now() + deadline_of_files());
}

void Servers::done(const std::string& why, bool failed, std::chrono::milliseconds deadline) {
  std::vector<std::future<rpc::Reply>> replies;
  for (const auto& connection : connections_) {
    DoneRequest request;
    request.set_why(why);
    request.set_failed(failed);
    const auto promise = std::make_shared<std::promise<rpc::Reply>>();
    replies.push_back(promise->get_future());
    connection->start("Done", message_of(request), Clock::now() + deadline,
                      [promise](rpc::Reply reply) { promise->set_value(std::move(reply)); });
  }
  for (auto& reply : replies) reply.get();  // whoever does not answer is gone
}

}  // namespace lockstep::strategies
