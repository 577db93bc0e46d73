// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/server_worker.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "strategies/parameter_server/array_reader.h"
#include "strategies/parameter_server/messages.pb.h"
#include "strategies/parameter_server/sequence_table.h"

namespace lockstep::strategies {

using engine::Clock;
using engine::Code;
using engine::Error;
using engine::Range;

namespace {

constexpr int kIncarnationBit = SequenceTable::kLifeBit;  // of sequence numbers

void add_parts(const ShardChunk& chunk, google::protobuf::RepeatedPtrField<Part>* to) {
  for (const ShardPart& part : chunk.parts) {
    Part* const added = to->Add();
    added->set_shard(std::uint32_t(part.shard));
    added->set_begin(part.begin);
    added->set_end(part.end);
  }
}

}  // namespace

struct ServerWorker::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t pushing = 0;
  std::optional<Error> failed;
  Counts counts;

  void fail(const Error& why) {
    {
      std::scoped_lock lock(mutex);
      if (!failed) failed = why;
    }
    changed.notify_all();
  }
};

ServerWorker::ServerWorker(const ServerWorkerTerms& terms, const Arena& arena,
                           std::vector<std::unique_ptr<rpc::Connection>> servers)
    : terms_(terms),
      arena_(arena),
      width_(engine::size_of(terms.dtype)),
      sequence_(servers.size()),
      pulled_(servers.size()),
      shared_(std::make_shared<Shared>()),
      servers_(std::move(servers)) {
  for (std::size_t server = 0; server < servers_.size(); ++server) {
    const std::vector<ShardChunk> chunks =
        arena.shards->chunks(server, {0, arena.trainable}, terms.chunk_bytes);
    for (const ShardChunk& chunk : chunks) chunks_.push_back({server, chunk, false});
    if (!chunks.empty()) chunks_.back().last = true;
  }
  std::ranges::stable_sort(chunks_, {}, [](const Chunk& chunk) { return chunk.of.span.end; });
}

ServerWorker::~ServerWorker() {
  servers_.clear();
}

void ServerWorker::go_on_from(const ServerWorker& before) {
  sequence_ = before.sequence_;
  waited_ = before.waited_;
  counts_ = before.counts();
  shared_->counts = counts_;
}

void ServerWorker::begin(std::uint64_t generation, std::uint64_t incarnation) {
  generation_ = generation;
  for (std::uint64_t& sequence : sequence_)
    if (sequence >> kIncarnationBit != incarnation) sequence = incarnation << kIncarnationBit;
}

void ServerWorker::fail(const Error& why) {
  shared_->fail(why);
}

void ServerWorker::pull(Range range, std::int64_t at_least) {
  pulls_.clear();
  std::fill(pulled_.begin(), pulled_.end(), std::nullopt);
  for (std::size_t server = 0; server < servers_.size(); ++server)
    for (ShardChunk& chunk : arena_.shards->chunks(server, range, terms_.chunk_bytes))
      pulls_.push_back(std::make_shared<Pull>(Pull{server, std::move(chunk), {}, false}));
  // Forward needs them from the end of the arena on.
  std::ranges::stable_sort(pulls_, std::greater<>(),
                           [](const auto& pull) { return pull->of.span.end; });
  for (const auto& pull : pulls_) {
    PullRequest request;
    request.set_container(terms_.container);
    request.set_generation(generation_);
    add_parts(pull->of, request.mutable_parts());
    request.set_at_least(at_least);
    request.set_bfloat16(terms_.bfloat16);
    rpc::Connection& server = *servers_[pull->server];
    server.start("Pull", {request.SerializeAsString(), {}}, Clock::now() + terms_.deadline,
                 [shared = shared_, pull, address = server.address()](rpc::Reply reply) {
                   {
                     std::scoped_lock lock(shared->mutex);
                     if (!reply.ok() && !shared->failed)
                       shared->failed.emplace(reply.code,
                                              fmt::format("pull from {}: {}", address, reply.why));
                     pull->reply = std::move(reply);
                   }
                   shared->changed.notify_all();
                 });
  }
}

// Each call of a connection ends at its deadline, so this does.
template <class Test>
void ServerWorker::wait_until(std::unique_lock<std::mutex>& lock, Test test) {
  const auto begin = Clock::now();
  shared_->changed.wait(lock, [&] { return shared_->failed || test(); });
  waited_ += std::chrono::duration<double>(Clock::now() - begin).count();
  if (shared_->failed) throw *shared_->failed;
}

void ServerWorker::wait(Range range) {
  for (const auto& pull : pulls_) {
    const Range span = pull->of.span;
    if (pull->taken || span.end <= range.begin || span.begin >= range.end) continue;
    {
      std::unique_lock lock(shared_->mutex);
      wait_until(lock, [&] { return pull->reply.has_value(); });
    }
    take(*pull);
  }
}

void ServerWorker::take(Pull& pull) {
  const rpc::Reply reply = std::move(*pull.reply);  // gives the memory back at the end
  pull.taken = true;
  PullReply head;
  const std::string& from = servers_[pull.server]->address();
  if (!head.ParseFromString(reply.message.head))
    engine::fail(Code::kCorrupt, "the answer of {} cannot be read", from);
  const std::size_t wire = wire_width(terms_.dtype, terms_.bfloat16);
  if (reply.message.body_bytes() != pull.of.elements * wire) {
    engine::fail(Code::kCorrupt, "{} bytes came from {}, and {} elements were asked for",
                 reply.message.body_bytes(), from, pull.of.elements);
  }
  ArrayReader reader(reply.message.body, terms_.bfloat16);
  for (const ShardPart& part : pull.of.parts) {
    for (std::size_t done = 0; done < part.size();) {
      const std::size_t count = std::min(part.size() - done, ArrayReader::kMost);
      std::memcpy(arena_.weights + (part.offset + done) * width_, reader.next(count, terms_.dtype),
                  count * width_);
      done += count;
    }
  }
  std::optional<std::int64_t>& version = pulled_[pull.server];
  version = std::min(version.value_or(head.version()), head.version());
  counts_.bytes_pulled += pull.of.elements * wire;
}

void ServerWorker::push(std::size_t end, const Step& step) {
  for (; sent_ < chunks_.size() && chunks_[sent_].of.span.end <= end; ++sent_) {
    const Chunk& chunk = chunks_[sent_];
    PushRequest request;
    request.set_container(terms_.container);
    request.set_generation(generation_);
    request.set_worker(terms_.worker);
    request.set_sequence(++sequence_[chunk.server]);
    request.set_step(step.version);
    request.set_pulled(pulled_[chunk.server].value_or(step.version));
    request.set_rate(step.rate);
    add_parts(chunk.of, request.mutable_parts());
    request.set_last(chunk.last);
    request.set_bfloat16(terms_.bfloat16);
    std::vector<rpc::Slice> body;
    for (const ShardPart& part : chunk.of.parts)
      body.push_back({arena_.gradients + part.offset * width_, part.size() * width_});
    if (terms_.bfloat16) body = narrowed(body, terms_.dtype);
    for (const rpc::Slice& slice : body) counts_.bytes_pushed += slice.size;
    ++counts_.pushes;
    {
      std::scoped_lock lock(shared_->mutex);
      ++shared_->pushing;
    }
    rpc::Connection& server = *servers_[chunk.server];
    server.start("Push", {request.SerializeAsString(), std::move(body)},
                 Clock::now() + terms_.deadline,
                 [shared = shared_, address = server.address()](rpc::Reply reply) {
                   PushReply head;
                   {
                     std::scoped_lock lock(shared->mutex);
                     --shared->pushing;
                     if (!reply.ok()) {
                       if (!shared->failed)
                         shared->failed.emplace(reply.code,
                                                fmt::format("push to {}: {}", address, reply.why));
                     } else if (head.ParseFromString(reply.message.head)) {
                       shared->counts.late += head.what() == PushReply::LATE;
                       shared->counts.too_stale += head.what() == PushReply::TOO_STALE;
                       shared->counts.staleness_sum += head.staleness();
                       shared->counts.staleness_most =
                           std::max<std::uint64_t>(shared->counts.staleness_most, head.staleness());
                     }
                   }
                   shared->changed.notify_all();
                 });
  }
}

void ServerWorker::settle() {
  std::unique_lock lock(shared_->mutex);
  wait_until(lock, [&] { return shared_->pushing == 0; });
  sent_ = 0;
}

ServerWorker::Counts ServerWorker::counts() const {
  Counts counts = counts_;
  std::scoped_lock lock(shared_->mutex);
  counts.late = shared_->counts.late;
  counts.too_stale = shared_->counts.too_stale;
  counts.staleness_sum = shared_->counts.staleness_sum;
  counts.staleness_most = shared_->counts.staleness_most;
  return counts;
}

}  // namespace lockstep::strategies
