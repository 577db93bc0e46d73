// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/worker/server_worker.h"

#include <algorithm>
#include <set>
#include <utility>

#include "strategies/parameter_server/rpc/array_reader.h"
#include "strategies/parameter_server/rpc/messages.pb.h"
#include "strategies/parameter_server/rpc/sequence_table.h"

namespace lockstep::strategies {

using engine::Clock;
using engine::Code;
using engine::Error;
using engine::Range;

namespace {

constexpr int kIncarnationBit = SequenceTable::kLifeBit;  // in sequence numbers

template <class Head>
void add_rows(const RowChunk& chunk, Head& head) {
  head.set_shard(std::uint32_t(chunk.shard));
  head.mutable_rows()->Add(chunk.rows.begin(), chunk.rows.end());
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
  for (std::size_t server = 0; server < servers_.size(); ++server)
    for (ShardChunk& chunk : arena.shards->chunks(server, {0, arena.trainable}, terms.chunk_bytes))
      dense_.emplace_back(server, std::move(chunk));
  plan_pushes();
}

// Sorts the messages of a step by their ends, and marks each server's last one.
void ServerWorker::plan_pushes() {
  chunks_.clear();
  for (const auto& [server, chunk] : dense_) chunks_.push_back({server, &chunk, {}, false});
  for (const RowChunk& chunk : touched_) chunks_.push_back({chunk.server, nullptr, chunk, false});
  std::ranges::stable_sort(chunks_, {}, &Chunk::end);
  std::vector<bool> has(servers_.size(), false);
  for (auto chunk = chunks_.rbegin(); chunk != chunks_.rend(); ++chunk) {
    chunk->last = !has[chunk->server];
    has[chunk->server] = true;
  }
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
  prefetched_.clear();  // replies of another run
  for (std::uint64_t& sequence : sequence_)
    if (sequence >> kIncarnationBit != incarnation) sequence = incarnation << kIncarnationBit;
}

void ServerWorker::fail(const Error& why) {
  shared_->fail(why);
}

std::shared_ptr<ServerWorker::Pull> ServerWorker::pull_of(std::size_t server,
                                                          const ShardChunk& chunk) {
  auto pull = std::make_shared<Pull>(Pull{server, chunk.span});
  for (const ShardPart& part : chunk.parts)
    pull->runs.push_back({part.offset, part.offset + part.size()});
  return pull;
}

std::size_t ServerWorker::bytes_of(const Pull& pull) const {
  std::size_t elements = 0;
  for (const Range run : pull.runs) elements += run.size();
  return elements * wire_width(terms_.dtype, terms_.bfloat16);
}

void ServerWorker::start(const std::shared_ptr<Pull>& pull, std::string_view method,
                         std::string head) {
  rpc::Connection& server = *servers_[pull->server];
  server.start(method, {std::move(head), {}, bytes_of(*pull)}, Clock::now() + terms_.deadline,
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

// Fills the fields that both kinds of pulls share.
template <class Request>
void ServerWorker::fill(Request& request, std::int64_t at_least) {
  request.set_container(terms_.container);
  request.set_generation(generation_);
  request.set_at_least(at_least);
  request.set_bfloat16(terms_.bfloat16);
}

void ServerWorker::pull(Range range, std::int64_t at_least) {
  pulls_ = std::exchange(prefetched_, {});
  // The chunks in flight, by server and begin. They cover the trainable part, which `range` is
  // then.
  std::set<std::pair<std::size_t, std::size_t>> came;
  for (const auto& pull : pulls_) came.emplace(pull->server, pull->span.begin);
  std::fill(pulled_.begin(), pulled_.end(), std::nullopt);
  std::vector<std::pair<std::shared_ptr<Pull>, ShardChunk>> chunks;
  for (std::size_t server = 0; server < servers_.size(); ++server) {
    for (ShardChunk& chunk : arena_.shards->chunks(server, range, terms_.chunk_bytes)) {
      if (came.contains({server, chunk.span.begin})) continue;
      auto pull = pull_of(server, chunk);
      chunks.emplace_back(std::move(pull), std::move(chunk));
    }
  }
  // Forward needs weights from the end of the arena first.
  std::ranges::stable_sort(chunks, std::greater<>(),
                           [](const auto& chunk) { return chunk.second.span.end; });
  for (const auto& [pull, chunk] : chunks) {
    PullRequest request;
    fill(request, at_least);
    add_parts(chunk.parts, request);
    pulls_.push_back(pull);
    start(pull, "Pull", request.SerializeAsString());
  }
}

void ServerWorker::pull_rows(const engine::Graph& graph, std::int64_t at_least) {
  std::erase_if(pulls_, [](const auto& pull) { return pull->rows; });
  touched_.clear();
  if (arena_.rows == nullptr) return;
  const RowShards& rows = *arena_.rows;
  for (std::size_t table = 0; table < rows.tables().size(); ++table) {
    const engine::Parameter& parameter = rows.tables()[table];
    const auto touched = graph.touched(parameter);
    const std::size_t row_bytes = parameter.whole[1] * wire_width(terms_.dtype, terms_.bfloat16);
    const std::size_t most =
        std::clamp<std::size_t>(terms_.chunk_bytes / row_bytes, 1, RowShards::kMostRows);
    const auto chunks = rows.chunks(table, touched, most);
    for (const RowChunk& chunk : chunks) {
      PullRowsRequest request;
      fill(request, at_least);
      add_rows(chunk, request);
      pulls_.push_back(
          std::make_shared<Pull>(Pull{chunk.server, parameter.range, {chunk.span}, true}));
      counts_.traffic.rows_pulled += chunk.rows.size();
      start(pulls_.back(), "PullRows", request.SerializeAsString());
    }
    if (parameter.frozen) continue;
    const auto all = terms_.synchronous ? rows.chunks(table, touched) : chunks;
    touched_.insert(touched_.end(), all.begin(), all.end());
  }
  plan_pushes();
}

// This wait ends, since each call of a connection ends at its deadline.
template <class Test>
void ServerWorker::wait_until(std::unique_lock<std::mutex>& lock, Test test) {
  const auto begin = Clock::now();
  shared_->changed.wait(lock, [&] { return shared_->failed || test(); });
  waited_ += std::chrono::duration<double>(Clock::now() - begin).count();
  if (shared_->failed) throw *shared_->failed;
}

void ServerWorker::wait(Range range) {
  for (const auto& pull : pulls_) {
    if (pull->taken || pull->span.end <= range.begin || pull->span.begin >= range.end) continue;
    {
      std::unique_lock lock(shared_->mutex);
      wait_until(lock, [&] { return pull->reply.has_value(); });
    }
    take(*pull);
  }
}

std::int64_t ServerWorker::version_of(const Pull& pull, const rpc::Reply& reply) const {
  PullReply of_pull;
  PushReply of_push;
  const std::string& head = reply.message.head;
  if (!(pull.pushed ? of_push.ParseFromString(head) : of_pull.ParseFromString(head)))
    engine::fail(Code::kCorrupt, "the answer of {} cannot be read",
                 servers_[pull.server]->address());
  return pull.pushed ? of_push.version() : of_pull.version();
}

void ServerWorker::take(Pull& pull) {
  const rpc::Reply reply = std::move(*pull.reply);  // frees the memory at the end
  pull.taken = true;
  const std::int64_t came = version_of(pull, reply);
  const std::size_t bytes = bytes_of(pull);
  if (reply.message.body_bytes() != bytes) {
    engine::fail(Code::kCorrupt, "{} bytes came from {}, and {} were asked for",
                 reply.message.body_bytes(), servers_[pull.server]->address(), bytes);
  }
  ArrayReader reader(reply.message.body, terms_.bfloat16);
  for (const Range run : pull.runs)
    reader.read(arena_.weights + run.begin * width_, run.size(), terms_.dtype);
  std::optional<std::int64_t>& version = pulled_[pull.server];
  version = std::min(version.value_or(came), came);
  counts_.traffic.bytes_pulled += bytes;
}

// Fills the fields that both kinds of pushes share.
template <class Request>
void ServerWorker::fill(Request& request, const Chunk& chunk, const Step& step) {
  request.set_container(terms_.container);
  request.set_generation(generation_);
  request.set_worker(terms_.worker);
  request.set_sequence(++sequence_[chunk.server]);
  request.set_step(step.version);
  request.set_pulled(pulled_[chunk.server].value_or(step.version));
  request.set_rate(step.rate);
  request.set_last(chunk.last);
  request.set_bfloat16(terms_.bfloat16);
}

void ServerWorker::push(std::size_t end, const Step& step) {
  const bool all = end >= arena_.trainable;  // backward is finished
  for (; sent_ < chunks_.size() && chunks_[sent_].end() <= end; ++sent_) {
    const Chunk& chunk = chunks_[sent_];
    std::string bytes;           // the message's head
    std::shared_ptr<Pull> next;  // the next step's weights
    std::vector<rpc::Slice> body;
    if (chunk.rows) {
      PushRowsRequest request;
      fill(request, chunk, step);
      add_rows(*chunk.rows, request);
      bytes = request.SerializeAsString();
      const Range span = chunk.rows->span;
      if (!span.empty())
        body.push_back({arena_.gradients + span.begin * width_, span.size() * width_});
      counts_.traffic.rows_pushed += chunk.rows->rows.size();
    } else {
      PushRequest request;
      fill(request, chunk, step);
      add_parts(chunk.parts->parts, request);
      if (step.next == Step::Next::kAll || (step.next == Step::Next::kLast && all)) {
        next = prefetched_.emplace_back(pull_of(chunk.server, *chunk.parts));
        next->pushed = true;
        request.set_want_weights(true);
      }
      bytes = request.SerializeAsString();
      for (const ShardPart& part : chunk.parts->parts)
        body.push_back({arena_.gradients + part.offset * width_, part.size() * width_});
    }
    if (terms_.bfloat16) body = narrowed(body, terms_.dtype);
    for (const rpc::Slice& slice : body) counts_.traffic.bytes_pushed += slice.size;
    ++counts_.pushes;
    {
      std::scoped_lock lock(shared_->mutex);
      ++shared_->pushing;
    }
    rpc::Connection& server = *servers_[chunk.server];
    const std::size_t answer_bytes = next ? bytes_of(*next) : 0;
    server.start(chunk.rows ? "PushRows" : "Push",
                 {std::move(bytes), std::move(body), answer_bytes}, Clock::now() + terms_.deadline,
                 [shared = shared_, next, address = server.address()](rpc::Reply reply) {
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
                     if (next) next->reply = std::move(reply);
                   }
                   shared->changed.notify_all();
                 });
  }
}

void ServerWorker::synchronize() {
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
