// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/worker/servers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/device/buffer.h"
#include "engine/nn/initial.h"
#include "strategies/parameter_server/rpc/messages.pb.h"
#include "strategies/parameter_server/server/message_values.h"

namespace lockstep::strategies {

using engine::Clock;

namespace {

constexpr std::uint64_t kSlowDisk = 10'000;             // bytes per millisecond
constexpr std::chrono::milliseconds kFailureCheck{20};  // interval of checks of `failed_`

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

Servers::Servers(Connections connections, std::string container, std::chrono::milliseconds deadline)
    : container_(std::move(container)), deadline_(deadline), connections_(std::move(connections)) {}

Servers::~Servers() = default;

// Returns the deadline of file operations, which allows for the largest server's file on a slow
// disk.
std::chrono::milliseconds Servers::deadline_of_files() const {
  std::uint64_t most = 0;
  for (const JobSpec& spec : specs_) most = std::max(most, spec.bytes());
  return deadline_ + std::chrono::milliseconds(most / kSlowDisk);
}

void Servers::start(std::string_view method, std::size_t server, rpc::Message request,
                    std::chrono::milliseconds deadline, Replies& replies) {
  const auto promise = std::make_shared<std::promise<rpc::Reply>>();
  replies.emplace(server, promise->get_future());
  connections_[server]->start(
      method, std::move(request), Clock::now() + deadline,
      [promise](rpc::Reply reply) { promise->set_value(std::move(reply)); });
}

std::vector<rpc::Message> Servers::finish(std::string_view method, Replies replies,
                                          bool must_wait) {
  std::vector<rpc::Message> answers;
  std::optional<engine::Error> failed;
  for (auto& [server, future] : replies) {
    while (future.wait_for(kFailureCheck) != std::future_status::ready) {
      std::scoped_lock lock(mutex_);
      if (failed_ && !must_wait) throw *failed_;
    }
    rpc::Reply reply = future.get();
    if (reply.ok()) {
      answers.push_back(std::move(reply.message));
    } else if (!failed) {
      failed.emplace(reply.code, fmt::format("{} at server {} ({}): {}", method, server,
                                             address(server), reply.why));
    }
  }
  if (failed) throw *failed;
  return answers;
}

template <class RequestOf>
std::vector<rpc::Message> Servers::call_all(std::string_view method,
                                            std::chrono::milliseconds deadline,
                                            const RequestOf& request_of) {
  Replies replies;
  for (std::size_t server = 0; server < size(); ++server)
    start(method, server, request_of(server), deadline, replies);
  return finish(method, std::move(replies));
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
  call_all("Open", deadline_, [&](std::size_t server) { return open_request(server); });
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
    Replies replies;
    for (std::size_t server = 0; server < size(); ++server) {
      if (i >= chunks[server].size()) continue;
      AssignRequest request;
      request.set_container(container_);
      request.set_generation(generation_);
      request.set_how(AssignRequest::FORCE);
      add_parts(chunks[server][i].parts, request);
      start("Assign", server, {request.SerializeAsString(), values(chunks[server][i])}, deadline_,
            replies);
    }
    // Waits for all calls, since they read the caller's values.
    finish("Assign", std::move(replies), true);
  }
}

void Servers::fail(const engine::Error& why) {
  std::scoped_lock lock(mutex_);
  if (!failed_) failed_ = why;
}

std::vector<engine::Shard> Servers::save(const std::string& folder, std::int64_t step) {
  const auto request_of = [&](std::size_t server) {
    SaveRequest request;
    request.set_container(container_);
    request.set_generation(generation_);
    request.set_folder(folder);
    request.set_step(step);
    request.set_rank(std::uint32_t(server));
    request.set_ranks(std::uint32_t(size()));
    return message_of(request);
  };
  std::vector<engine::Shard> shards;
  for (const rpc::Message& answer : call_all("Save", deadline_of_files(), request_of)) {
    const auto head = server_answer<SaveReply>(answer);
    shards.push_back({head.bytes(), head.crc()});
  }
  return shards;
}

rpc::Message Servers::restore_request(const std::string& folder, std::int64_t step,
                                      const std::vector<std::string>& zero) const {
  RestoreRequest request;
  request.set_container(container_);
  request.set_generation(generation_);
  request.set_folder(folder);
  request.set_step(step);
  for (const std::string& prefix : zero) request.add_zero(prefix);
  return message_of(request);
}

void Servers::restore(const std::string& folder, std::int64_t step,
                      const std::vector<std::string>& zero) {
  call_all("Restore", deadline_of_files(),
           [&](std::size_t) { return restore_request(folder, step, zero); });
}

void Servers::restore(std::size_t server, const std::string& folder, std::int64_t step,
                      const std::vector<std::string>& zero) {
  rpc::call(*connections_[server], "Restore", restore_request(folder, step, zero),
            Clock::now() + deadline_of_files());
}

void Servers::done(const std::string& why, bool failed, std::chrono::milliseconds deadline) {
  DoneRequest request;
  request.set_why(why);
  request.set_failed(failed);
  Replies replies;
  for (std::size_t server = 0; server < size(); ++server)
    start("Done", server, message_of(request), deadline, replies);
  for (auto& [server, reply] : replies) reply.wait();  // a silent server is gone
}

}  // namespace lockstep::strategies
